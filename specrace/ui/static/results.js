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

class Track {
  constructor(host) {
    this.host = host;
  }

  show(methods, longest) {
    this.longest = longest;
    this.photo = false;
    this.rows = methods.map((method) => {
      const row = make("div", "track-row");
      row.dataset.lane = method.lane;
      row.dataset.hue = method.hue ?? 7;
      const bar = make("span", "bar"), fill = make("i"), notch = make("u", "", "", "Where this lane was when the first one finished.");
      notch.hidden = true;
      bar.append(fill, notch);
      const tokens = make("span", "tokens", "", "Tokens written."), place = make("b", "place");
      row.append(make("span", "name", method.title), bar, place, tokens);
      return { row, fill, notch, tokens, place, meters: { tokens: 0, ms: 0 }, end: "" };
    });
    this.host.replaceChildren(...this.rows.map((each) => each.row));
    this.draw();
  }

  apply(lane) {
    Object.assign(this.rows[lane.lane], { meters: lane.meters, end: lane.end });
  }

  // The photo finish: every lane's place on the track at the moment when the first one is through.
  takePhoto() {
    const longest = Math.max(...this.rows.map((each) => each.meters.tokens));
    for (const { notch, meters } of this.rows) {
      notch.hidden = meters.tokens === longest;
      notch.style.left = `${(100 * meters.tokens) / longest}%`;
    }
    this.photo = true;
  }

  // All lanes share one axis: the limit on tokens, then the length of the text once a lane has finished it.
  draw() {
    const ended = this.rows.filter((each) => each.end).sort((a, b) => a.meters.ms - b.meters.ms);
    const axis = ended.length ? Math.max(...this.rows.map((each) => each.meters.tokens)) : this.longest;
    if (ended.length && !this.photo) this.takePhoto();
    for (const each of this.rows) {
      const { tokens, ms } = each.meters, place = ended.indexOf(each);
      each.fill.style.transform = `scaleX(${Math.min(1, tokens / axis || 0)})`;
      each.tokens.textContent = !tokens ? "" : each.end ? `${tokens} tokens in ${seconds(ms)}` : `${tokens} tokens`;
      each.place.textContent = place < 0 || this.rows.length === 1 ? "" : PLACES[place];
      each.row.dataset.place = place + 1;
    }
  }
}

function showResults(host, rows) {
  const table = make("table"), head = make("tr"), body = make("tbody");
  for (const [name, , title] of COLUMNS) head.append(make("th", "", name, title));
  const best = Math.max(...rows.map((row) => row.speedup));
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
  host.hidden = false;
}
