import { button, make, svg, table, setText, setWords } from "../../../specrace/ui/static/lib/dom.js";
import { HOSTILE, put } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "HTML in a text is not parsed": () => {
    const node = make("p", "name", HOSTILE, HOSTILE);
    return [
      [node.textContent, node.title, node.className, node.children.length],
      [HOSTILE, HOSTILE, "name", 0],
    ];
  },
  "HTML in a picture's text is not parsed": () => {
    const node = svg("text", { x: 3, "aria-label": HOSTILE }, HOSTILE);
    return [
      [node.namespaceURI, node.getAttribute("x"), node.textContent, node.children.length],
      ["http://www.w3.org/2000/svg", "3", HOSTILE, 0],
    ];
  },
  "a table of text and elements": () => {
    const cells = [...table(["a", "b"], [[HOSTILE, make("b", "", "bold")]], "").querySelectorAll("td")];
    return [
      cells.map((cell) => [cell.textContent, cell.children.length]),
      [
        [HOSTILE, 0],
        ["bold", 1],
      ],
    ];
  },
  "an unchanged text is not written again": () => {
    const host = put();
    setText(host, "one");
    const first = host.firstChild;
    setText(host, "one");
    const kept = host.firstChild === first;
    setText(host, "two");
    return [
      [kept, host.textContent],
      [true, "two"],
    ];
  },
  "a word with a hyphen stays whole, unless it is long": () => {
    const host = put();
    setWords(host, `N-gram trie (n-9) is - ${HOSTILE} --host ${"a-b".repeat(9)}`);
    return [
      [host.textContent, [...host.children].map((word) => [word.className, word.textContent])],
      [
        `N-gram trie (n-9) is - ${HOSTILE} --host ${"a-b".repeat(9)}`,
        [
          ["whole", "N-gram"],
          ["whole", "(n-9)"],
          ["whole", "--host"],
        ],
      ],
    ];
  },
  "a button has a label, a title and an action": () => {
    let pressed = 0;
    const node = button("›", "Step forwards", () => pressed++);
    node.click();
    return [
      [node.type, node.getAttribute("aria-label"), node.title, pressed],
      ["button", "Step forwards", "Step forwards", 1],
    ];
  },
};
