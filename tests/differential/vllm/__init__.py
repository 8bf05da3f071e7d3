"""vLLM's part: its scheduler, its cache manager and its model runner, over a model that is nothing but attention layers."""
