// Inputs that the cases of several modules share.
export const HOSTILE =
  "<img src=x onerror=window.__pwn=1> ${window.__pwn=2} {{x}} </p><script>window.__pwn=3</script> =cmd() \u202egnirts 🦉";
// As a pane shows it, without the control character that reverses text.
export const SHOWN = HOSTILE.replace("\u202e", "");

// A step whose draft has 4 nodes: "cat" and its child "sat" are accepted, "dog" is not, "ran" is never reached.
export const EVENT = {
  index: 3,
  tree: { tokens: [7, 1, 2, 3, 4], parents: [-1, 0, 1, 0, 3] },
  pieces: ["the", " cat", " sat", " dog", " ran"],
  verdict: { path: [0, 1, 2], bonus: 9, scores: { targets: [1, 2, 9, 9, 9] } },
  emitted: [1, 2, 9],
  texts: [" cat", " sat", " on"],
  timing: { draft_ms: 1, target_ms: 2.5, keep_ms: 0.5 },
};
export const SHORT_EVENT = { ...EVENT, emitted: [1] };
export const LANES = [
  { lane: "vanilla", title: "Vanilla" },
  { lane: "trie", title: "Trie" },
];
// A server whose chunks are steps, and one whose chunks are not.
export const SERVED = { engine: "vLLM 0.32.0", chunks_are_steps: true, note: "" };
export const UNMARKED = { ...SERVED, chunks_are_steps: false, note: "it streams token by token" };
export const STEPS = [
  { lane: 0, index: 0, at: 5, event: EVENT },
  { lane: 1, index: 0, at: 6, event: SHORT_EVENT },
  { lane: 0, index: 1, at: 9, event: SHORT_EVENT },
];
export const ROWS = [
  { title: "Vanilla", speedup: 1, drafted: 0, accepted: 0, tau: 1 },
  { title: "Trie", speedup: 2.5, drafted: 40, accepted: 30, tau: 5 },
];

// Adds an element with these children, [tag, properties], to the page, and returns it.
export function put(...children) {
  const host = document.createElement("div");
  document.body.append(host);
  for (const [tag, properties] of children) host.append(Object.assign(document.createElement(tag), properties));
  return host;
}
