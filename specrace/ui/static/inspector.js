// The step inspector: the draft tree of one step, its attention mask, its time, and what its drafter tells of it.
const TREE_NODES = 32, TREE_PERIOD_MS = 250, TREE_DEPTHS_PX = 22, TREE_ROW_PX = 44, NODE_PX = 38, TRAJECTORY_STEPS = 8, TRAJECTORY_PLACES = 12;
const PIECE_LETTERS = 14;
const NODE_WORDS = {
  root: "the pending token: said already, not yet read by the model",
  accepted: "drafted, and the model agreed",
  rejected: "drafted, and the model said something else here",
  unverified: "drafted, but behind a rejected token, so it did not matter",
  cut: "drafted and agreed to, but the text had ended",
  bonus: "the model's own token, one a step",
};
const PARTS = [
  ["draft_ms", "draft", "The drafter's own work: proposing and learning."],
  ["target_ms", "model", "One run of the model over the whole tree."],
  ["keep_ms", "cache", "Keeping the accepted path in the KV cache."],
];

function svg(tag, attributes = {}, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// A token as it fits a box: blanks made visible where there is nothing else, long ones cut.
function shorten(piece, letters = PIECE_LETTERS) {
  const text = piece.trim() ? piece.trim() : piece.includes("\n") ? "↵" : piece ? "␣" : "·";
  const characters = Array.from(text.slice(0, 4 * letters + 4));
  return characters.length > letters ? `${characters.slice(0, letters - 1).join("")}…` : characters.join("");
}

function percent(share) {
  return share >= 0.0995 ? `${(100 * share).toFixed(0)} %` : share >= 0.00095 ? `${(100 * share).toFixed(1)} %` : "<0.1 %";
}

// What became of every node of a step's tree.
function judge(event) {
  const { parents } = event.tree, path = new Set(event.verdict.path);
  const last = Math.min(event.verdict.path.length - 1, event.emitted.length);
  return parents.map((parent, node) => {
    if (!node) return "root";
    if (path.has(node)) return event.verdict.path.indexOf(node) <= last ? "accepted" : "cut";
    return path.has(parent) ? "rejected" : "unverified";
  });
}

// At most `most` nodes, the accepted path among them; a node's parent always is, for parents have lower numbers.
function chooseNodes(event, most) {
  const path = event.verdict.path.slice(0, most), chosen = new Set(path);
  for (let node = 0; node < event.tree.parents.length && chosen.size < most; node++) {
    if (chosen.has(event.tree.parents[node])) chosen.add(node);
  }
  return [...chosen].sort((a, b) => a - b);
}

const ruler = document.createElement("canvas").getContext("2d");

function textWidth(text, font) {
  ruler.font = font;
  return ruler.measureText(text).width;
}

class Tree {
  // `following`: the lane's next step, whose pending token is this step's bonus.
  constructor(event, following) {
    const kinds = judge(event), { probs, parents } = event.tree, counts = event.note?.counts ?? [];
    const telling = probs?.some((prob, node) => node && prob !== 1);
    this.nodes = chooseNodes(event, TREE_NODES).map((node) => {
      const prob = telling && node ? percent(probs[node]) : "", count = node && counts.length ? `${counts[node]}×` : "";
      const piece = event.pieces[node] ?? "";
      return { node, parent: parents[node], kind: kinds[node], piece, small: count || prob, prob, count };
    });
    this.left = parents.length - this.nodes.length;
    this.addBonus(event, following);
    this.place();
  }

  addBonus(event, following) {
    const { path } = event.verdict;
    if (event.emitted.length < path.length) return;
    const said = event.texts[path.length - 1] ?? "";
    const piece = following?.pieces[0] || said || (event.end === "eos" ? "end" : "·");
    this.nodes.push({ node: "bonus", parent: path[path.length - 1], kind: "bonus", piece, small: "own", prob: "", count: "" });
  }

  // Tidy, left to right: leaves one below the other, a parent in the middle of its children.
  place() {
    const byNode = new Map(this.nodes.map((each) => [each.node, each])), widths = [];
    for (const each of this.nodes) {
      each.children = [];
      const parent = byNode.get(each.parent);
      each.depth = parent ? parent.depth + 1 : 0;
      parent?.children.push(each);
      each.text = each.kind === "bonus" && !each.piece.trim() ? "·" : shorten(each.piece);
      each.mark = each.kind === "rejected" ? "× " : "";
      each.width = Math.max(textWidth(each.mark + each.text, "16px Source Sans Pro, sans-serif"), textWidth(each.small, "13px Source Sans Pro, sans-serif")) + 18;
      widths[each.depth] = Math.max(widths[each.depth] ?? 0, each.width);
    }
    const lefts = [2];
    for (const [depth, width] of widths.entries()) lefts.push(lefts[depth] + width + TREE_DEPTHS_PX);
    let row = 0;
    const settle = (each) => {
      each.children.forEach(settle);
      each.x = lefts[each.depth];
      const ends = [each.children[0], each.children.at(-1)];
      each.y = each.children.length ? (ends[0].y + ends[1].y) / 2 : TREE_ROW_PX * row++;
    };
    settle(this.nodes[0]);
    this.width = lefts.at(-1) - TREE_DEPTHS_PX + 4;
    this.height = TREE_ROW_PX * row + 2;
  }

  draw(words) {
    const picture = svg("svg", { width: Math.ceil(this.width), height: Math.ceil(this.height), role: "img", "aria-label": words });
    const byNode = new Map(this.nodes.map((each) => [each.node, each]));
    for (const each of this.nodes.slice(1)) picture.append(this.edge(byNode.get(each.parent), each));
    for (const each of this.nodes) picture.append(this.box(each));
    return picture;
  }

  edge(parent, child) {
    const [x0, y0, x1, y1] = [parent.x + parent.width, parent.y + NODE_PX / 2, child.x, child.y + NODE_PX / 2];
    const middle = x1 - TREE_DEPTHS_PX / 2;
    return svg("path", { class: `edge ${child.kind}`, d: `M${x0} ${y0}H${middle - 6}C${middle + 4} ${y0} ${middle - 6} ${y1} ${x1} ${y1}` });
  }

  box(each) {
    const group = svg("g", { class: `node ${each.kind}`, transform: `translate(${each.x} ${each.y})`, "data-node": each.node });
    const facts = [each.count && `seen ${each.count}`, each.prob && `probability ${each.prob}`].filter(Boolean).join(", ");
    const shown = JSON.stringify(each.piece.length > 200 ? `${each.piece.slice(0, 200)}…` : each.piece);
    group.append(svg("title", {}, `${shown}: ${NODE_WORDS[each.kind]}${facts ? ` (${facts})` : ""}`));
    group.append(svg("rect", { width: each.width, height: NODE_PX, rx: 4 }));
    if (each.kind === "accepted") group.append(svg("path", { class: "bars", d: `M1.5 0V${NODE_PX - 1.5}H${each.width - 1.5}V0` }));
    const piece = svg("text", { class: "piece", x: each.width / 2, y: each.small ? 17 : 24 });
    // The cross is not struck through: of a token of one letter nothing else could be read.
    if (each.mark) piece.append(svg("tspan", { class: "cross" }, each.mark));
    piece.append(svg("tspan", { class: "said" }, each.text));
    group.append(piece);
    if (each.small) group.append(svg("text", { class: "small", x: each.width / 2, y: 32 }, each.small));
    return group;
  }
}

// Row i is filled where node i may look: at itself and at its ancestors.
function drawMask(event) {
  const nodes = chooseNodes(event, TREE_NODES), place = new Map(nodes.map((node, index) => [node, index]));
  const kinds = judge(event), size = nodes.length > 20 ? 8 : 11, left = 14;
  const side = left + nodes.length * size + 1;
  const words = `Attention mask of ${nodes.length} nodes`;
  const picture = svg("svg", { class: "mask", width: side, height: side - left + 1, role: "img", "aria-label": words });
  picture.append(svg("rect", { class: "frame", x: left, y: 0.5, width: nodes.length * size, height: nodes.length * size }));
  nodes.forEach((node, row) => {
    const group = svg("g", { class: `row ${kinds[node]}`, "data-node": node }), seen = [];
    for (let each = node; each >= 0; each = event.tree.parents[each]) seen.push(each);
    const cells = seen.map((each) => `M${left + place.get(each) * size + 1} ${row * size + 1.5}h${size - 1}v${size - 1}h${1 - size}z`);
    const path = seen.reverse().map((each) => shorten(event.pieces[each] ?? ""));
    group.append(svg("title", {}, path.length > 1 ? `${path.at(-1)} sees ${path.slice(0, -1).join(" → ")} and itself` : `${path[0]} sees itself`));
    group.append(svg("path", { d: cells.join("") }));
    if (kinds[node] === "accepted") group.append(svg("path", { class: "tick", d: `M2 ${row * size + 2}l7 ${(size - 2) / 2}l-7 ${(size - 2) / 2}z` }));
    picture.append(group);
  });
  return picture;
}

function drawSplit(timing) {
  const total = PARTS.reduce((sum, [part]) => sum + timing[part], 0), bar = make("div", "split"), keys = make("p", "split-keys");
  for (const [part, name, title] of PARTS) {
    const piece = make("i", part, undefined, `${name}: ${timing[part].toFixed(3)} ms. ${title}`);
    piece.style.flexGrow = total ? timing[part] / total : 0;
    bar.append(piece);
    const key = make("span", "", undefined, title);
    key.append(make("i", part), `${name} ${timing[part].toFixed(2)} ms`);
    keys.append(key);
  }
  const both = make("div");
  both.append(bar, keys);
  return both;
}

function table(names, rows, className) {
  const node = make("table", className), head = make("tr"), body = make("tbody"), section = make("thead");
  for (const name of names) head.append(make("th", "", name));
  section.append(head);
  for (const cells of rows) {
    const line = make("tr");
    line.append(...cells.map((cell) => {
      if (!(cell instanceof Node)) return make("td", "", cell);
      const box = make("td");
      box.append(cell);
      return box;
    }));
    body.append(line);
  }
  node.append(section, body);
  return node;
}

function chip(piece, kind, small, title) {
  const node = make("span", `chip ${kind}`, shorten(piece, 20), title ?? JSON.stringify(piece.slice(0, 200)));
  if (small) node.append(make("small", "", small));
  return node;
}

// Rejection sampling: how each guess that was looked at was judged.
function drawChecks(event) {
  const rows = event.checks.map((check, index) => {
    const stays = check.coin * check.q < check.p;
    const limit = Math.min(1, check.q ? check.p / check.q : 1);
    const words = stays ? `coin below ${limit.toFixed(3)}: it stays` : `coin not below ${limit.toFixed(3)}: it goes`;
    const figures = [check.p, check.q, limit, check.coin].map((figure) => figure.toFixed(3));
    return [chip(event.pieces[index + 1] ?? "", stays ? "accepted" : "rejected"), ...figures, words];
  });
  return table(["draft token", "p, model", "q, drafter", "min(1, p/q)", "coin", ""], rows, "coins");
}

// How many of a row's tokens, from the pending one on, lie on the accepted path.
function followed(event, row) {
  const { path } = event.verdict, { tokens } = event.tree;
  if (row.counts.length || row.after.length !== 1 || row.after[0] !== tokens[0]) return 0;
  let length = 0;
  while (length < row.tokens.length && length + 1 < path.length && tokens[path[length + 1]] === row.tokens[length]) length++;
  return length;
}

function drawNoteRows(event, rows) {
  const chain = event.tree.parents.every((parent, node) => parent === node - 1), hasAfter = rows.some((row) => row.after_text);
  const wide = Math.max(...rows.map((row) => row.tokens.length));
  const lines = rows.map((row, number) => {
    const accepted = followed(event, row);
    const own = chain && row.counts.length && event.verdict.path.includes(number) ? event.verdict.scores.targets[number] : undefined;
    const chips = row.tokens.map((token, index) => {
      const piece = row.pieces[index] ?? `#${token}`, count = row.counts.length ? `${row.counts[index]}×` : "";
      const chosen = token === own;
      return chip(piece, index < accepted || chosen ? "accepted" : "", count, chosen ? "what the model said here" : undefined);
    });
    const empty = Array.from({ length: wide - chips.length }, () => "");
    return [row.label, ...(hasAfter ? [make("b", "after", `${shorten(row.after_text, 24)} →`)] : []), ...chips, ...empty];
  });
  return table(["", ...(hasAfter ? ["after"] : []), ...Array(wide).fill("")], lines, "note-rows");
}

// Guesses over several steps, by their place in the answer: a column settles when the model agrees with it.
function drawTrajectory(steps, index) {
  const near = steps.slice(Math.max(0, index - TRAJECTORY_STEPS + 1), index + 1);
  const shown = near.filter((each) => each.base > steps[index].base - TRAJECTORY_PLACES), first = shown[0].base;
  const lines = shown.map(({ event, base }) => {
    const kinds = judge(event), cells = Array.from({ length: base - first }, () => "");
    for (let node = 1; node < event.pieces.length; node++) cells.push(chip(event.pieces[node], kinds[node]));
    return [`step ${event.index + 1}`, ...cells];
  });
  const wide = Math.max(...lines.map((line) => line.length));
  const padded = lines.map((line) => [...line, ...Array(wide - line.length).fill("")]);
  const names = Array.from({ length: wide - 1 }, (_, place) => String(first + place));
  return table(["place in the answer", ...names], padded, "note-rows trajectory");
}

class Inspector {
  constructor(stage) {
    this.stage = stage;
    this.lanes = [];
    this.at = { lane: 0, step: 0 };
    this.node = make("section", "inspector");
    this.node.setAttribute("aria-label", "Step inspector");
    this.node.dataset.empty = "true";
    const head = make("header");
    this.tabs = make("div", "lane-tabs");
    this.tabs.setAttribute("role", "group");
    this.tabs.setAttribute("aria-label", "Lane");
    this.back = this.button("‹", "Step back", () => this.seek(this.at.step - 1));
    this.next = this.button("›", "Step forwards", () => this.seek(this.at.step + 1));
    this.place = make("b", "place");
    const walk = make("div", "walk");
    walk.append(this.back, this.place, this.next);
    head.append(make("h2", "", "One step"), this.tabs, walk);
    this.words = make("p", "words", "While a race runs, the latest draft tree of one lane is here; after it, every step of every lane, what the model made of it, and where its time went.");
    this.tree = make("div", "tree scroller");
    this.more = make("p", "more-nodes");
    this.rest = make("div", "rest");
    this.tree.tabIndex = 0;
    this.tree.setAttribute("role", "region");
    this.tree.setAttribute("aria-label", "Draft tree of the step");
    this.node.append(head, this.words, this.tree, this.more, this.legend(), this.rest);
    this.node.addEventListener("pointerover", (event) => this.point(event.target.closest?.("[data-node]")));
    stage.addEventListener("begun", ({ detail }) => detail.live && this.begin(detail.lanes));
    stage.addEventListener("step", ({ detail }) => this.take(detail));
    stage.addEventListener("reel", (event) => this.load(event.detail));
    stage.addEventListener("cursor", (event) => event.detail && this.follow(event.detail));
    new IntersectionObserver(([{ isIntersecting }]) => {
      this.seen = isIntersecting;
      this.ask();
    }).observe(this.node);
  }

  button(text, label, act) {
    const node = make("button", "small-button", text, label);
    node.type = "button";
    node.setAttribute("aria-label", label);
    node.addEventListener("click", act);
    return node;
  }

  legend() {
    const node = make("p", "tree-legend");
    for (const [kind, text] of [["accepted", "accepted"], ["rejected", "rejected"], ["unverified", "never reached"], ["bonus", "model's own"]]) {
      node.append(chip(text, kind, "", NODE_WORDS[kind]));
    }
    node.append(make("span", "", "Under a token: how often the drafter had seen it there, or its probability."));
    return node;
  }

  setLanes(lanes) {
    this.lanes = lanes.map((lane) => ({ ...lane, steps: [], tokens: 0 }));
    this.tabs.replaceChildren(...this.lanes.map((lane, number) => {
      const tab = this.button(lane.title, `Steps of ${lane.title}`, () => this.jump(number));
      tab.dataset.hue = methods.get(lane.lane)?.hue ?? 7;
      tab.dataset.lane = lane.lane;
      return tab;
    }));
    this.node.dataset.empty = "false";
  }

  // A live race: the latest step of one lane, of the one that was looked at before, or else of the last.
  begin(lanes) {
    const before = lanes.findIndex((lane) => lane.lane === this.node.dataset.lane);
    this.setLanes(lanes);
    this.live = true;
    this.asked = "";
    this.node.dataset.live = "true";
    this.at = { lane: before < 0 ? lanes.length - 1 : before, step: 0 };
    this.press();
    this.ask();
  }

  // The server sends whole steps of the lane that somebody looks at, and none when nobody does.
  ask() {
    const wanted = this.live && this.seen ? this.lanes[this.at.lane].lane : "";
    if (!this.live || wanted === this.asked) return;
    this.asked = wanted;
    fetch(`gradio_api/race/${this.stage.dataset.key}`, { method: "POST", body: wanted }).catch(() => {});
  }

  take(event) {
    const { lane, title } = this.lanes[this.at.lane];
    if (!this.live || event.lane !== lane) return;
    this.node.dataset.step = event.index;
    this.place.textContent = `step ${event.index + 1}`;
    this.picture(event, undefined, this.describe(event, title, event.at_ms));
    this.rest.replaceChildren(this.split(event));
  }

  press() {
    const { lane } = this.at;
    this.node.dataset.lane = this.lanes[lane].lane;
    this.tabs.querySelectorAll("button").forEach((tab, number) => tab.setAttribute("aria-pressed", String(number === lane)));
  }

  load(reel) {
    this.setLanes(reel.head.lanes);
    this.live = false;
    this.node.dataset.live = "false";
    for (const { lane, at, event } of reel.steps) {
      const own = this.lanes[lane];
      own.steps.push({ event, at, base: own.tokens });
      own.tokens += event.emitted.length;
    }
    this.drawn = undefined;
    const best = reel.results.reduce((best, row, number) => (row.speedup > reel.results[best].speedup ? number : best), 0);
    const longest = this.lanes[best].steps.reduce((most, each, index, all) => (each.event.emitted.length > all[most].event.emitted.length ? index : most), 0);
    this.show(best, longest);
  }

  // While a replay plays the lane stays, or no tree could be read: its latest step; else whatever the cursor is at.
  follow({ lane, step }) {
    if (this.live) return;
    if (!player.playing) return void this.show(lane, step);
    const later = this.lanes[this.at.lane].steps.findIndex((each) => each.at > player.time);
    this.show(this.at.lane, later < 0 ? this.lanes[this.at.lane].steps.length - 1 : later - 1);
  }

  // Another lane, at the step that was under way at the same race time.
  jump(lane) {
    if (this.live) {
      this.at = { lane, step: 0 };
      this.press();
      return this.ask();
    }
    const at = this.lanes[this.at.lane].steps[this.at.step]?.at ?? 0;
    const later = this.lanes[lane].steps.findIndex((each) => each.at >= at);
    this.at = { lane, step: 0 };
    return this.seek(later < 0 ? this.lanes[lane].steps.length - 1 : later);
  }

  seek(step) {
    const { lane } = this.at;
    if (!this.lanes[lane]?.steps[step]) return;
    this.show(lane, step, true);
    this.stage.dispatchEvent(new CustomEvent("seek", { detail: { lane, step } }));
  }

  // A replay may come by often: the tree is drawn at most four times a second, and the last step always.
  show(lane, step, now = false) {
    if (!this.lanes[lane]?.steps[step]) return;
    this.at = { lane, step };
    clearTimeout(this.timer);
    const wait = now ? 0 : Math.max(0, (this.drawn ?? 0) + TREE_PERIOD_MS - performance.now());
    if (wait) this.timer = setTimeout(() => this.draw(), wait);
    else this.draw();
  }

  draw() {
    this.drawn = performance.now();
    const { lane, step } = this.at, { steps, title } = this.lanes[lane], { event, at } = steps[step];
    this.node.dataset.step = step;
    this.press();
    this.back.disabled = !step;
    this.next.disabled = step === steps.length - 1;
    this.place.textContent = `step ${step + 1} of ${steps.length}`;
    this.picture(event, steps[step + 1]?.event, this.describe(event, title, at));
    this.rest.replaceChildren(...this.parts(event, steps, step));
  }

  picture(event, following, words) {
    this.words.textContent = words;
    const tree = new Tree(event, following);
    this.tree.replaceChildren(tree.draw(words));
    this.tree.scrollTop = tree.nodes[0].y + NODE_PX / 2 - this.tree.clientHeight / 2;
    this.more.textContent = tree.left ? `+${tree.left} more ${tree.left > 1 ? "nodes" : "node"}` : "";
  }

  split(event) {
    return this.part("Time of this step", drawSplit(event.timing), "On the lane's own clock.");
  }

  describe(event, title, at) {
    const drafted = event.tree.tokens.length - 1, accepted = Math.min(event.verdict.path.length - 1, event.emitted.length);
    const wrote = `${event.emitted.length} ${event.emitted.length === 1 ? "token" : "tokens"}`;
    const draft = drafted ? `${title} drafted ${drafted}, the model agreed with ${accepted}` : `${title} drafted nothing`;
    const took = PARTS.reduce((sum, [part]) => sum + event.timing[part], 0);
    return `${draft}: ${wrote} in ${took.toFixed(1)} ms. Race time ${seconds(at)}.`;
  }

  parts(event, steps, step) {
    const parts = [this.split(event)];
    if (event.tree.tokens.length > 1) {
      parts.push(this.part("Attention mask", drawMask(event), "A row a node, in draft order: it sees the filled ones, its ancestors, and all of the text before them."));
    }
    if (event.checks?.length) parts.push(this.part("Rejection sampling", drawChecks(event), "A draft token stays with probability min(1, p/q): the coin decides."));
    const facts = Object.entries(event.note?.facts ?? {});
    if (facts.length) {
      parts.push(this.part("The drafter tells", table(["", ""], facts.map(([name, fact]) => [name, String(fact).slice(0, 80)]), "facts"), ""));
    }
    const groups = new Map();
    for (const row of event.note?.rows ?? []) groups.set(row.group, [...(groups.get(row.group) ?? []), row]);
    for (const [group, rows] of groups) {
      if (group === "Trajectory") parts.push(this.part(group, drawTrajectory(steps, step), "Each step's guesses stand where they would be in the answer; they settle from the left.", true));
      else parts.push(this.part(group, drawNoteRows(event, rows), GROUP_WORDS[group] ?? "", true));
    }
    return parts;
  }

  part(title, body, words, wide) {
    const node = make("div", wide ? "part wide" : "part"), box = make("div", "scroller");
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", title);
    box.append(body);
    node.append(make("h3", "", title), box, ...(words ? [make("p", "", words)] : []));
    return node;
  }

  // The same node in the tree and in the mask.
  point(node) {
    const number = node?.dataset.node;
    if (number === this.pointed) return;
    this.pointed = number;
    this.node.querySelectorAll("[data-node]").forEach((each) => each.classList.toggle("pointed", each.dataset.node === number));
  }
}

const GROUP_WORDS = {
  Sources: "Which source each guess is from: the longest context that it once followed, or whatever else knows it.",
  Window: "A column hangs from its trunk token in row 0, the oldest guesses; each row below is one step newer and one place further on.",
  Pool: "N-grams that were collected after the pending token; marked is what the model agreed with.",
  "Rows of the table": "The most frequent tokens after the context, with their counts; marked is what the model said.",
};
