// The race track, one bar a lane, and the table after the race.
const COLUMNS = [
  ["Lane", (row) => row.title, ""],
  ["Speedup", (row) => `${row.speedup.toFixed(2)}×`, MEANS.speedup],
  ["Tokens/s", (row) => row.tokens_per_s.toFixed(1), MEANS.rate],
  ["Tokens/step", (row) => row.tau.toFixed(2), MEANS.tau],
  ["Accepted/drafted", (row) => `${row.accepted}/${row.drafted}`, MEANS.counts],
  ["Drafted a step", (row) => row.drafted_per_step.toFixed(1), "Draft tokens that the model checked in a step, on average."],
  ["Steps", (row) => String(row.steps), "Runs of the model."],
  ["Tokens", (row) => String(row.tokens), "Tokens written."],
  ["Time", (row) => seconds(row.ms), "On the lane's own clock; the prompt is not counted."],
  ["Compared with vanilla", (row) => row.badge[1] + (row.loops ? " · repeats itself" : ""), MEANS.badge],
];
const PLACES = ["1st", "2nd", "3rd", "4th", "5th", "6th"];

function seconds(ms) {
  return `${(ms / 1000).toFixed(2)} s`;
}

// How long the axis of a live race is, in seconds: nobody knows yet when it will end.
const AXES_S = [0.25, 0.5, 1, 2, 3, 5, 8, 12, 20, 30, 45, 60, 90, 120, 180, 300, 450, 600];
const TICKS_S = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200];
const MOST_TICKS = 6, FEW_TOKENS = 200;

class Track {
  constructor(host) {
    this.host = host;
  }

  // `length`: of the race, in ms, where it is known; `most`: the most tokens that a lane may write.
  show(methods, length, most) {
    this.length = length;
    this.every = most > FEW_TOKENS ? 50 : 10;
    this.axis = 0;
    this.rows = methods.map((method) => this.lane(method));
    this.ticks = make("span", "ticks");
    const axis = make("div", "track-row axis"), words = `a mark every ${this.every} tokens`;
    axis.append(make("span", "name", "race time"), this.ticks, make("b"), make("span", "tokens", words, "The closer the marks of a lane are, the faster it writes."));
    this.host.replaceChildren(...this.rows.map((each) => each.row), axis);
    this.draw();
  }

  lane(method) {
    const row = make("div", "track-row");
    row.dataset.lane = method.lane;
    row.dataset.hue = method.hue ?? 7;
    const bar = make("span", "bar"), fill = make("i"), notch = make("u", "", undefined, "When the first lane was through.");
    const picture = svg("svg", { preserveAspectRatio: "none", "aria-hidden": "true" }), path = svg("path");
    picture.append(path);
    notch.hidden = true;
    bar.append(fill, picture, notch);
    const tokens = make("span", "tokens", "", "Tokens written, and the lane's own time."), place = make("b", "place");
    row.append(make("span", "name", method.title), bar, place, tokens);
    return { row, fill, picture, path, notch, tokens, place, meters: { tokens: 0, ms: 0 }, end: "", marks: [] };
  }

  apply({ lane, meters, end }) {
    const each = this.rows[lane], { tokens, ms } = each.meters;
    for (let next = tokens - (tokens % this.every) + this.every; next <= meters.tokens; next += this.every) {
      each.marks.push(ms + ((next - tokens) / (meters.tokens - tokens)) * (meters.ms - ms));
    }
    Object.assign(each, { meters, end });
  }

  // All lanes share one axis, race time: a bar grows until its lane is through.
  draw() {
    const ended = this.rows.filter((each) => each.end).sort((a, b) => a.meters.ms - b.meters.ms), first = ended[0]?.meters.ms;
    this.fit(Math.max(0, ...this.rows.map((each) => each.meters.ms)));
    for (const each of this.rows) {
      const { tokens, ms } = each.meters, place = ended.indexOf(each);
      each.fill.style.transform = `scaleX(${ms / this.axis})`;
      each.notch.hidden = !(ms > first);
      each.notch.style.left = `${(100 * first) / this.axis}%`;
      if (each.drawn !== each.marks.length) each.path.setAttribute("d", each.marks.map((at) => `M${at.toFixed(1)} 0v1`).join(""));
      each.drawn = each.marks.length;
      write(each.tokens, !tokens ? "" : each.end ? `${tokens} tokens in ${seconds(ms)}` : `${tokens} tokens`);
      write(each.place, place < 0 || this.rows.length === 1 ? "" : PLACES[place]);
      each.row.dataset.place = place + 1;
    }
  }

  // The axis is as long as the race, or, while it runs, longer than it has run.
  fit(now) {
    const axis = this.length || 1000 * (AXES_S.find((each) => 950 * each > now) ?? now / 900);
    if (axis === this.axis) return;
    this.axis = axis;
    for (const each of this.rows) each.picture.setAttribute("viewBox", `0 0 ${axis} 1`);
    const every = 1000 * (TICKS_S.find((each) => axis / (1000 * each) <= MOST_TICKS) ?? axis / 1000 / MOST_TICKS), ticks = [];
    for (let at = 0; at < 0.97 * axis; at += every) {
      const tick = make("i", "", `${+(at / 1000).toFixed(2)} s`);
      tick.style.left = `${(100 * at) / axis}%`;
      ticks.push(tick);
    }
    this.ticks.replaceChildren(...ticks);
  }
}

// The fastest lane, where that is one that drafts.
function findBest(rows) {
  const best = rows.reduce((best, row) => (row.speedup > best.speedup ? row : best), { speedup: 0 });
  return rows.length > 1 && best.drafted ? best : undefined;
}

// Who is fastest, and by what: tokens for each run of the model.
function tellWhy(rows) {
  const best = findBest(rows);
  if (!best) return "";
  const share = Math.round((100 * best.accepted) / best.drafted);
  return `Why ${best.title} is fastest: it wrote ${best.tau.toFixed(1)} tokens for each run of the model, where vanilla writes 1. The model agreed with ${share} % of its drafts, and a step took ${(best.tau / best.speedup).toFixed(2)} times as long as one of vanilla's.`;
}

function showResults(host, rows, why) {
  const table = make("table"), head = make("tr"), body = make("tbody");
  for (const [name, , title] of COLUMNS) head.append(make("th", "", name, title));
  const best = why && Math.max(...rows.map((row) => row.speedup));
  for (const row of rows) {
    const line = make("tr", row.speedup === best ? "best" : "");
    line.dataset.lane = row.lane;
    line.dataset.badge = row.badge[0];
    for (const [, text] of COLUMNS) line.append(make("td", "", text(row)));
    body.append(line);
  }
  const section = make("thead");
  section.append(head);
  table.append(section, body);
  host.querySelector(".scroller").replaceChildren(table);
  host.querySelector("h2 small").textContent = why;
  host.hidden = false;
}
