// Makes elements of the page. Text from outside is always inserted as text, never as markup.
/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {string} [className]
 * @param {string} [text]
 * @param {string} [title]
 */
export function make(tag, className, text, title) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  if (title) node.title = title;
  return node;
}

/**
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string | number>} attributes
 * @param {string} [text]
 */
export function svg(tag, attributes = {}, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  if (text !== undefined) node.textContent = text;
  return node;
}

// `label` is both the name for screen readers and the tooltip.
export function button(text, label, onClick) {
  const node = make("button", "small-button", text, label);
  node.type = "button";
  node.setAttribute("aria-label", label);
  node.addEventListener("click", onClick);
  return node;
}

// A table whose columns have the headings `columns`. Cells are texts or elements.
export function table(columns, rows, className) {
  const node = make("table", className);
  const names = make("tr");
  const head = make("thead");
  const body = make("tbody");
  for (const column of columns) names.append(make("th", "", column));
  head.append(names);
  for (const cells of rows) {
    const line = make("tr");
    line.append(
      ...cells.map((cell) => {
        if (!(cell instanceof Node)) return make("td", "", cell);
        const td = make("td");
        td.append(cell);
        return td;
      }),
    );
    body.append(line);
  }
  node.append(head, body);
  return node;
}

/**
 * The target of an event, or the closest element around it, that matches `selector`; null if there is none.
 * @param {EventTarget} target
 * @param {string} selector
 * @returns {HTMLElement | null}
 */
export function closest(target, selector) {
  return target instanceof Element ? target.closest(selector) : null;
}

// The length of the longest word that is not broken: a phone's line has room for it.
const MAX_WHOLE_WORD = 20;

// Sets a node's text so that no line ends after a hyphen inside a word: "N-gram" and "--host" stay whole.
/**
 * @param {HTMLElement} node
 * @param {string} text
 */
export function setWords(node, text) {
  // The words with a hyphen have odd indices, because `split` keeps what the group matches.
  const parts = text.split(/(\S*-\w\S*)/);
  const isWhole = (part, index) => index % 2 === 1 && part.length <= MAX_WHOLE_WORD;
  node.replaceChildren(...parts.map((part, index) => (isWhole(part, index) ? make("span", "whole", part) : part)));
}

// Sets a node's text, but leaves an equal text alone, which saves the browser a layout.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
