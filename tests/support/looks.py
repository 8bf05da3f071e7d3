"""What is wrong with how a page looks, asked of the browser that shows it."""

from __future__ import annotations

#: Every text that is hard to read: below 12 px, or below the contrast that WCAG AA asks of text, 4.5. Of a transparent
#: background the one behind it counts.
ILLEGIBLE = """
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function rgb(colour) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
}
function luminance(colour) {
  const [r, g, b] = rgb(colour).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function background(element) {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (rgb(colour)[3] === 255) return colour;
  }
  return "white";
}
const found = [];
for (const element of document.querySelectorAll(`${arguments[0]} *`)) {
  const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
  if (!text || element.tagName === "SCRIPT" || !element.checkVisibility()) continue;
  const style = getComputedStyle(element);
  const [low, high] = [luminance(style.color), luminance(background(element))].sort((a, b) => a - b);
  const contrast = (high + 0.05) / (low + 0.05);
  if (parseFloat(style.fontSize) < 12) found.push(`${style.fontSize}: ${text}`);
  if (contrast < 4.5) found.push(`contrast ${contrast.toFixed(2)}: ${text}`);
}
return found;
"""
#: What sticks out of the page on the right, unless it can be scrolled to in a container that does not
OVERFLOW = """
const wide = document.documentElement.clientWidth;
const out = (element) => element.getBoundingClientRect().right > wide + 1;
const scrolled = (element) => {
  const container = element.parentElement.closest(".scroll");
  return container && getComputedStyle(container).overflowX === "auto" && !out(container);
};
const found = [...document.body.querySelectorAll("*")].filter((element) => out(element) && !scrolled(element));
if (document.documentElement.scrollWidth > wide) found.push(document.documentElement);
return found.map((element) => element.tagName + " " + element.className);
"""


def illegible(browser, within: str = "body") -> list[str]:
    return browser.execute_script(ILLEGIBLE, within)


def overflow(browser) -> list[str]:
    return browser.execute_script(OVERFLOW)
