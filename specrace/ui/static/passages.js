// Retrieved passages, and which words of an answer were drafted from where. Offsets count characters as Python does,
// hence the arrays of code points.
const REDRAW_MS = 250, WORDS = ".passage mark.drafted";
// The order of a frame's `sources`; passages follow.
const SOURCES = [
  ["own", "model's own", "written by the model itself, one token a step"],
  ["elsewhere", "tables and guesses", "drafted from counts, or guessed; no one place in the text"],
  ["output", "its own output", "drafted from what the lane had already written"],
  ["prompt", "question and titles", "drafted from the rest of the prompt"],
];

function make(tag, className, text, title) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  if (title) node.title = title;
  return node;
}

class Passage {
  constructor(passage, number) {
    this.characters = Array.from(passage.text);
    this.evidence = new Uint8Array(this.characters.length);
    for (const [start, end] of passage.evidence) this.evidence.fill(1, start, end);
    this.links = [];
    this.node = make("article", "passage");
    const head = make("header");
    head.append(make("span", "number", `[${number}]`), make("h3", "", passage.title));
    head.append(make("span", "score", passage.score.toFixed(2), "Cosine between the question and this passage."));
    this.text = make("p");
    this.node.append(head, this.text, make("footer", "", passage.document));
    this.draw();
  }

  // Nothing is drafted from here yet.
  dim() {
    this.links = [];
    this.stale = true;
  }

  // The accepted run `run`, an element of a pane, has the words from `start` to `end`.
  link(start, end, run) {
    this.links.push({ start, end, run });
    this.stale = true;
  }

  // One mark for every stretch that the same runs have; a run that a pane has dropped counts no more.
  draw() {
    this.stale = false;
    this.links = this.links.filter(({ run }) => run.isConnected);
    const size = this.characters.length, edges = new Set([0, size]);
    for (let place = 1; place < size; place++) if (this.evidence[place] !== this.evidence[place - 1]) edges.add(place);
    for (const { start, end } of this.links) edges.add(Math.min(start, size)).add(Math.min(end, size));
    const places = [...edges].sort((a, b) => a - b);
    this.text.replaceChildren(...places.slice(0, -1).map((start, index) => this.stretch(start, places[index + 1])));
  }

  stretch(start, end) {
    const text = this.characters.slice(start, end).join("");
    const runs = this.links.filter((link) => link.start < end && start < link.end).map((link) => link.run);
    const names = [this.evidence[start] && "evidence", runs.length && "drafted"].filter(Boolean);
    if (!names.length) return document.createTextNode(text);
    const mark = make("mark", names.join(" "), text);
    Object.assign(mark, { start, end, runs });
    if (runs.length) mark.tabIndex = -1;
    return mark;
  }

  marks(start, end) {
    return [...this.text.querySelectorAll("mark.drafted")].filter((mark) => mark.start < end && start < mark.end);
  }
}

// How much of each lane's answer came from where, as a bar.
class Sources {
  constructor() {
    this.node = make("div", "sources");
    this.node.setAttribute("aria-label", "Where each answer was drafted from");
    this.node.setAttribute("role", "group");
    this.rows = [];
  }

  show(lanes) {
    this.rows = lanes.map((lane) => {
      const row = make("div", "source-row"), bar = make("span", "source-bar"), share = make("b", "source-share", "–");
      row.dataset.lane = lane.lane;
      row.dataset.hue = lane.hue ?? 7;
      row.append(make("span", "name", lane.title), bar, share);
      return { row, bar, share, counts: [] };
    });
    const keys = make("p", "source-keys");
    for (const [kind, words, title] of SOURCES) keys.append(this.key(kind, words, title));
    keys.append(this.key("from-passage", "passages, by number", "drafted from a retrieved passage"));
    const head = make("h3", "", "Drafted from where");
    this.node.replaceChildren(head, ...this.rows.map((each) => each.row), keys);
    this.draw();
  }

  key(kind, words, title) {
    const key = make("span", "", undefined, title);
    key.append(make("i", kind), words);
    return key;
  }

  dim() {
    for (const each of this.rows) each.counts = [];
  }

  draw() {
    for (const { row, bar, share, counts } of this.rows) {
      const total = counts.reduce((sum, count) => sum + count, 0), copied = counts.slice(SOURCES.length).reduce((sum, count) => sum + count, 0);
      const name = row.firstChild.textContent;
      share.textContent = total ? `${Math.round((100 * copied) / total)} %` : "–";
      share.title = `${copied} of the ${total} tokens of ${name} were drafted from the passages.`;
      bar.replaceChildren(...counts.flatMap((count, place) => (count ? [this.piece(count, place, total, name)] : [])));
    }
  }

  piece(count, place, total, name) {
    const [kind, words] = SOURCES[place] ?? ["from-passage", `passage ${place - SOURCES.length + 1}`];
    const piece = make("i", kind, SOURCES[place] ? "" : String(place - SOURCES.length + 1), `${name}: ${count} of ${total} tokens, ${words}`);
    piece.style.flexGrow = count;
    return piece;
  }
}

class Passages {
  constructor(host) {
    this.host = host;
    this.list = [];
    this.spans = new WeakMap();
    this.lit = [];
    this.sources = new Sources();
    host.querySelector(".cards").before(this.sources.node);
    for (const name of ["pointerover", "focusin"]) host.addEventListener(name, ({ target }) => this.pointAtWords(target.closest?.(WORDS)));
    for (const name of ["pointerleave", "focusout"]) host.addEventListener(name, () => this.point());
    host.addEventListener("keydown", (event) => this.step(event, WORDS, (mark) => mark.runs?.find((run) => run.isConnected)));
    new IntersectionObserver(([{ isIntersecting }]) => {
      this.seen = isIntersecting;
      if (this.late) this.redraw();
    }).observe(host);
  }

  // Runs in the panes light up their words here, and are lit by them.
  watch(panes) {
    for (const name of ["pointerover", "focusin"]) panes.addEventListener(name, ({ target }) => this.pointAtRun(target.closest?.(".run")));
    for (const name of ["pointerleave", "focusout"]) panes.addEventListener(name, () => this.point());
    panes.addEventListener("keydown", (event) => this.step(event, ".run.linked", (run) => this.marks(run)[0]));
  }

  show(passages, lanes = []) {
    this.list = passages.map((passage, index) => new Passage(passage, index + 1));
    this.host.querySelector(".cards").replaceChildren(...this.list.map((passage) => passage.node));
    this.sources.show(lanes);
    this.host.hidden = !this.list.length;
  }

  // Accepted runs say where they were copied from; redrawn at most four times a second.
  light(spans, run) {
    this.spans.set(run, spans);
    for (const [passage, start, end] of spans) this.list[passage]?.link(start, end, run);
    const numbers = [...new Set(spans.map(([passage]) => passage + 1))];
    run.title += `, from passage ${numbers.join(" and ")}`;
    run.classList.add("linked");
    run.tabIndex = run.parentNode?.querySelector(".run[tabindex='0']") ? -1 : 0;
    this.redraw();
  }

  count(lane, sources) {
    const row = this.sources.rows[lane];
    if (row) row.counts = sources ?? [];
    this.redraw();
  }

  // A replay begins anew.
  dim() {
    for (const passage of this.list) passage.dim();
    this.sources.dim();
    this.redraw();
  }

  // While a race runs, what nobody sees waits: the race may be on the same machine.
  redraw() {
    this.late = this.live && !this.seen;
    if (!this.late) this.timer ??= setTimeout(() => this.drawNow(), REDRAW_MS);
  }

  drawNow() {
    clearTimeout(this.timer);
    this.timer = undefined;
    for (const passage of this.list) if (passage.stale) passage.draw();
    this.sources.draw();
    if (this.pointed?.isConnected) this.pointAtRun(this.pointed);
  }

  // The words in the passages that a run was drafted from.
  marks(run) {
    return (this.spans.get(run) ?? []).flatMap(([passage, start, end]) => this.list[passage]?.marks(start, end) ?? []);
  }

  point(nodes = []) {
    for (const node of this.lit) node.classList.remove("lit");
    this.lit = nodes;
    this.pointed = undefined;
    for (const node of nodes) node.classList.add("lit");
  }

  pointAtRun(run) {
    if (!run || !this.spans.has(run)) return this.point();
    if (this.list.some((passage) => passage.stale)) this.drawNow();
    const marks = this.marks(run);
    this.point([run, ...marks]);
    this.pointed = run;
    this.reveal(marks[0]);
    return undefined;
  }

  pointAtWords(mark) {
    if (!mark) return this.point();
    return this.point([mark, ...mark.runs.filter((run) => run.isConnected)]);
  }

  // Within the column of passages, where it has one; the page itself stays where it is.
  reveal(mark) {
    const { host } = this;
    if (!mark || host.scrollHeight <= host.clientHeight || getComputedStyle(host).overflowY !== "auto") return;
    const frame = host.getBoundingClientRect(), place = mark.getBoundingClientRect();
    if (place.top < frame.top || place.bottom > frame.bottom) host.scrollTop += place.top - frame.top - frame.height / 3;
  }

  // Arrows walk from one to the next; Enter goes to the other end of the link.
  step(event, selector, other) {
    const node = event.target.closest?.(selector);
    if (!node) return;
    const list = [...event.currentTarget.querySelectorAll(selector)];
    const by = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    const next = by ? list[list.indexOf(node) + by] : event.key === "Enter" ? other(node) : undefined;
    if (!by && event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
    next?.focus();
  }
}
