// What a log recommends: for each engine the lane and its settings, ready to paste, and the evidence.
import { button, make, table } from "./dom.js";
import { downloadBlob } from "./files.js";
import { countOf, percent } from "./format.js";
import { describeLane } from "./lanes.js";
import { copyText } from "./share.js";

const SAID_MS = 4000;
const FOLD = 0.7;
const OFF = "switch drafting off";
const FIRST_ENGINE = "vllm";
const FORECAST =
  "A forecast for decoding, from this log and the costs chosen above: no model has run. Prefill is left out.";

export function tellRound({ settings, requests, done, cells }) {
  return settings === undefined
    ? `Reading: ${countOf(requests, "request")}`
    : `Trying ${countOf(settings, "setting")} on ${countOf(requests, "request")}, ${Math.round((100 * done) / cells)} %`;
}

const range = ({ speedup, speedup_low: low, speedup_high: high }) =>
  `${speedup.toFixed(2)}× as fast (${low.toFixed(2)} to ${high.toFixed(2)})`;
const titleOf = (lane) => describeLane({ lane }).title ?? lane;

// [what to do, why] of an engine's advice.
export function tellVerdict({ title, recommendation: found }) {
  if (found.lane === "vanilla")
    return ["Do not draft", `On this log no setting of ${title} is reliably faster than no drafting.`];
  return [`Use ${titleOf(found.lane)}, up to ${countOf(found.num_draft, "draft token")}`, `Forecast: ${range(found)}`];
}

export function tellGroup({ advice, best, lane }) {
  if (advice === OFF) return lane === "vanilla" ? "no draft pays" : OFF;
  if (advice === "draft" || advice === "not certain") return advice;
  const settings = best.lane === lane ? `, up to ${countOf(best.num_draft, "draft token")},` : "";
  return `use ${titleOf(best.lane)}${settings} there: ${best.speedup.toFixed(2)}×`;
}

// What else may be saved, by file name.
export function listFiles({ engine, export: { settings, synthetic, notes, files } }) {
  const load = synthetic ? [`# The same acceptance, for load tests:\n${synthetic}`] : [];
  const lines = [settings.trimEnd(), ...load, ...notes.map((note) => `# ${note}`)];
  return { [`${engine}.${settings.trimEnd().includes("\n") ? "yaml" : "txt"}`]: `${lines.join("\n")}\n`, ...files };
}

// Rows of what was tried: the lane, its options that not all its settings share, draft tokens, requests, figures.
export function listTried(tried) {
  const differs = (lane, key) => new Set(tried.filter((row) => row[0] === lane).map((row) => row[1][key])).size > 1;
  return tried
    .toSorted((a, b) => b[3] - a[3] || b[5] - a[5])
    .map(([lane, options, draft, requests, tau, speedup]) => [
      titleOf(lane),
      Object.entries(options)
        .filter(([key]) => differs(lane, key))
        .map(([key, value]) => `${key}=${value}`)
        .join(" "),
      ...[draft, requests, tau.toFixed(2), `${speedup.toFixed(2)}×`].map(String),
    ]);
}

function scroller(label, head, rows) {
  const box = make("div", "scroller");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", label);
  box.append(table(head, rows, "advice-table"));
  return box;
}

function folded(words, ...inside) {
  const node = make("details");
  node.append(make("summary", "", words), ...inside);
  return node;
}

function list(sentences) {
  const node = make("ul", "advice-list");
  node.append(...sentences.map((each) => make("li", "", each)));
  return node;
}

function labelled(words, field) {
  const node = make("label", "", words);
  node.append(field);
  return node;
}

// What the forecast costs are for: a GPU and a model's size, or another curve, and a batch size.
export class Costs {
  constructor(changed) {
    this.node = make("div", "advice-costs");
    [this.curve, this.size, this.batch] = ["Your GPU", "Model size", "Requests at a time"].map((words) => {
      const field = make("select");
      field.addEventListener("change", () => {
        this.size.disabled = !this.gpus.includes(this.curve.value);
        changed();
      });
      this.node.append(labelled(words, field));
      return field;
    });
  }

  // What was chosen before stays chosen.
  offer({ gpus, sizes, curves, batches }) {
    if (this.gpus) return;
    this.gpus = gpus;
    const gpu = (name) => new Option(name.toUpperCase().replace("RTX", "RTX "), name);
    this.curve.replaceChildren(...curves.map(([name, words]) => new Option(words, name)), ...gpus.map(gpu));
    this.size.replaceChildren(...sizes.map((each) => new Option(`${each} billion parameters, 16 bits`, each)));
    this.size.value = sizes.includes(8) ? 8 : sizes[0];
    this.size.disabled = true;
    this.batch.replaceChildren(...batches.map((each) => new Option(each, each)));
  }

  chosen() {
    const gpu = this.gpus.includes(this.curve.value);
    return { curve: gpu ? `${this.curve.value}-${this.size.value}b` : this.curve.value, batch: this.batch.value };
  }
}

export class Advice {
  // `say` takes what is to be announced.
  constructor(say) {
    this.say = say;
    this.node = make("section", "advice");
    this.node.hidden = true;
    this.engine = FIRST_ENGINE;
  }

  // Why there is none.
  refuse(words) {
    this.node.replaceChildren(make("p", "logs-facts", words));
    this.node.hidden = false;
  }

  show(advice, name) {
    this.advice = advice;
    const head = make("header");
    this.tabs = make("div", "lane-tabs");
    this.tabs.setAttribute("role", "group");
    this.tabs.setAttribute("aria-label", "Your engine");
    for (const { engine, title } of advice.engines) {
      const tab = button(title, `Recommendation for ${title}`, () => this.turn(engine));
      tab.dataset.engine = engine;
      this.tabs.append(tab);
    }
    head.append(make("h3", "", "Recommendation for"), this.tabs);
    this.body = make("div", "advice-body");
    const json = () => this.save("specrace-advice.json", JSON.stringify({ log: name, ...advice }, null, 1));
    const tried = folded(
      `All ${advice.tried.length} settings that were tried`,
      scroller(
        "Settings that were tried",
        ["Lane", "Settings", "Draft tokens", "Requests", "Tokens per step", "Forecast"],
        listTried(advice.tried),
      ),
      button("JSON", "Download everything as JSON", json),
    );
    this.node.replaceChildren(head, this.body, tried);
    this.node.hidden = false;
    this.turn(this.engine);
    // On a phone it would come below the fold.
    if (this.node.getBoundingClientRect().top > FOLD * innerHeight) this.node.scrollIntoView({ block: "start" });
  }

  turn(engine) {
    this.engine = engine;
    for (const tab of this.tabs.children) tab.setAttribute("aria-pressed", String(tab.dataset.engine === engine));
    const own = this.advice.engines.find((each) => each.engine === engine);
    const [what, why] = tellVerdict(own);
    const verdict = make("p", "advice-verdict");
    verdict.append(make("b", "", what), make("span", "", why));
    const text = make("div", "advice-text");
    text.append(make("p", "", [...own.text, ...this.tellRest()].join(" ")), make("p", "", FORECAST));
    this.body.replaceChildren(verdict, ...this.paste(own), text, ...this.groups(own));
    this.body.append(folded(`Not tested (${own.not_tested.length})`, list(own.not_tested)));
  }

  // Requests without a part in the figures.
  tellRest() {
    const { requests, scored, looping, left_out: limit } = this.advice;
    const rest = [];
    if (looping) rest.push(`${countOf(looping, "request")} left out: their output loops, which flatters copying.`);
    if (scored < requests - looping && scored)
      rest.push(`Time ran out: the best settings were scored on ${scored} of ${requests} requests.`);
    if (limit) rest.push(`The log has more requests: ${limit}.`);
    return rest;
  }

  paste(own) {
    const { settings, synthetic, notes } = own.export;
    const off = own.recommendation.lane === "vanilla" ? ` The best setting, if you still want to draft:` : "";
    const files = make("p", "advice-files", "Save: ");
    for (const [name, text] of Object.entries(listFiles(own)))
      files.append(button(name, `Save ${name}`, () => this.save(name, text)));
    const found = [make("p", "advice-where", `Paste into ${own.title}:${off}`), this.line(settings, own.title), files];
    const more = [
      ...(synthetic ? [this.line(synthetic, "the load test")] : []),
      ...(notes.length ? [list(notes)] : []),
    ];
    const words = synthetic ? "For a load test: the same acceptance, simulated" : "Notes";
    return more.length ? [...found, folded(words, ...more)] : found;
  }

  // A line to paste, its button, and the word that it is copied.
  line(settings, title) {
    const node = make("div", "advice-line");
    const code = make("pre", "", settings.trimEnd());
    code.tabIndex = 0;
    code.setAttribute("role", "region");
    code.setAttribute("aria-label", `Settings for ${title}`);
    const said = make("span", "advice-said");
    const copy = button("Copy", `Copy the settings for ${title}`, async () => {
      try {
        await copyText(settings.trimEnd(), node);
        said.textContent = "Copied";
        this.say(`Copied: the settings for ${title}.`);
      } catch {
        said.textContent = "The browser refuses; select the text and copy it.";
        this.say(said.textContent);
      }
      setTimeout(() => (said.textContent = ""), SAID_MS);
    });
    node.append(code, copy, said);
    return node;
  }

  groups(own) {
    if (own.groups.length < 2) return [];
    const tokens = own.groups.reduce((sum, { requests }) => sum + requests, 0);
    const rows = own.groups.map((group) => [
      group.category,
      `${group.requests} (${percent(group.requests / tokens)})`,
      `${group.speedup.toFixed(2)}×`,
      tellGroup(group),
    ]);
    return [scroller("Advice by category", ["Category", "Requests", "Forecast", "Advice"], rows)];
  }

  save(name, text) {
    downloadBlob(new Blob([text]), name);
  }
}
