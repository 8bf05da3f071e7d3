"""`attnfix probe`: is the attention of a running server right? Asked over HTTP, from outside; nothing here runs in a server."""
