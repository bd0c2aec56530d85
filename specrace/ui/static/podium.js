// The three fastest lanes, once the race is over.
const PODIUM = 3;

function showPodium(host, rows) {
  const best = [...rows].sort((a, b) => b.speedup - a.speedup).slice(0, PODIUM);
  host.replaceChildren(
    ...best.map((row, index) => {
      const item = make("li");
      item.dataset.place = index + 1;
      item.dataset.hue = row.hue ?? 7;
      item.append(make("b", "", `${row.speedup.toFixed(2)}×`, MEANS.speedup), make("span", "", row.title), make("i", "", String(index + 1)));
      return item;
    }),
  );
  host.hidden = rows.length < 2;
}
