/* SPDX-License-Identifier: Apache-2.0 */
"use strict";

/* The run's data, one JSON object per line as in --log-json. A "step" may be several merged steps. */
const lines = document.getElementById("run").textContent.split("\n")
	.filter((line) => line.trim()).map((line) => JSON.parse(line));
const all = (event) => lines.filter((one) => one.event === event);
const [run] = all("run"), steps = all("step"), epochs = all("epoch"), says = all("say");
const [now] = [...all("end"), ...all("now")], [leftOut] = all("left_out");
const ranks = now.ranks.map((rank, i) => ({ ...run.ranks[i], ...rank }));
const NAMED = 8; /* largest number of ranks that get a colour each */
const SHOWN = 64; /* largest number of ranks that get a bar each */
/* the result of --evaluate, which trains nothing */
const evaluation = steps.length ? undefined : epochs.find((one) => one.evaluated && !one.samples);

/* --- Formatting ----------------------------------------------------------------------------- */

class Html extends String {}

function escape(value) {
	if (value instanceof Html)
		return value;
	if (Array.isArray(value))
		return value.map(escape).join("");
	return String(value).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}

/* html`<b>${text}</b>`: escapes inserted values, except results of html itself. */
const html = (parts, ...values) => new Html(String.raw({ raw: parts }, ...values.map(escape)));

const number = (value, digits) => value.toLocaleString("en",
	{ minimumFractionDigits: digits, maximumFractionDigits: digits });
const count = (value) => number(value, 0);
const percent = (part, digits = 2) => part === null ? "nan" : (100 * part).toFixed(digits) + " %";
const last = (list) => list[list.length - 1];
const date = (time) => time.slice(0, 19).replace("T", " ") + " UTC";

function loss(value) {
	if (value === null)
		return "nan";
	const plain = value === 0 || (Math.abs(value) >= 0.001 && Math.abs(value) < 10000);
	return plain ? value.toFixed(4) : value.toPrecision(3);
}

function duration(seconds) {
	const whole = Math.round(seconds), two = (value) => String(Math.floor(value)).padStart(2, "0");
	if (seconds < 59.95)
		return seconds.toFixed(1) + " s";
	if (whole < 3600)
		return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
	if (whole < 86400)
		return `${Math.floor(whole / 3600)} h ${two(whole / 60 % 60)} min`;
	return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600 % 24)} h`;
}

function bytes(value) {
	const mebi = value / 1048576;
	return mebi < 10240 ? number(mebi, mebi < 9.95 ? 1 : 0) + " MiB" : number(mebi / 1024, 1) + " GiB";
}

/* --- Axes: position of a value (0 to 1), and labels ------------------------------------------ */

/* minimum distance of labels, as a fraction of the axis */
const CLOSEST = 0.085;

/* Makes an axis. [ticks] are [value, label]. [scale] maps values to the range from [low] to [high]. */
function axis(scale, low, high, ticks, note = "") {
	const place = (value) => Math.min(Math.max((scale(value) - low) / (high - low), -0.5), 1.5);
	const kept = [];
	for (const [value, label] of ticks) {
		const at = place(value);
		if (at > -1e-9 && at < 1 + 1e-9 && !(at - kept[kept.length - 1]?.at < CLOSEST))
			kept.push({ at, label });
	}
	return { place, ticks: kept, note };
}

/* The smallest number of the form 1, 2 or 5 times a power of ten that is not below [least]. */
function roundStep(least) {
	const power = 10 ** Math.floor(Math.log10(least));
	return power * ([1, 2, 5].find((step) => power * step >= least * (1 - 1e-9)) || 10);
}

/* Label of a tick. Very large and very small values have exponents, so that the label stays short. */
function tickLabel(value, digits, thousands) {
	if (value && (Math.abs(value) >= (thousands ? 1e8 : 1e6) || Math.abs(value) < 1e-5))
		return Number(value.toPrecision(3)).toExponential();
	return thousands && value ? value / 1000 + "k" : number(value, digits);
}

/* Axis from [low] to [high], extended to round numbers. Labels show values times [factor]. */
function roundAxis(low, high, factor = 1, note = "") {
	const top = high > low ? high : low + (Math.abs(low) || 1), step = roundStep((top - low) / 5);
	const first = Math.floor(low / step + 1e-9), last = Math.ceil(top / step - 1e-9);
	const digits = Math.max(0, -Math.floor(Math.log10(step * factor) + 1e-9));
	const room = 0.015 * (last - first) * step, ticks = [];
	for (let i = first; i <= last; i++) {
		const value = Number((i * step * factor).toPrecision(12));
		ticks.push([i * step, tickLabel(value, digits, top * factor >= 1e5)]);
	}
	return axis((value) => value, first * step - room, last * step + room, ticks, note);
}

const fromZero = (low, high) => roundAxis(0, high);

/* Axis of losses. It is logarithmic if all values are positive and differ much, else linear from 0. */
function lossAxis(low, high) {
	if (!(low > 0 && high / low >= 15))
		return roundAxis(Math.min(low, 0), high);
	const scale = (value) => Math.log10(Math.max(value, 1e-300)), room = 0.03 * scale(high / low);
	const ticks = [];
	for (let power = Math.floor(scale(low)) - 1; power < scale(high) + 1; power++)
		for (const digit of high / low > 1500 ? [1] : [1, 2, 5])
			ticks.push([digit * 10 ** power, tickLabel(digit * 10 ** power, Math.max(0, -power))]);
	return axis(scale, scale(low) - room, scale(high) + room, ticks, "logarithmic");
}

/* Axis of accuracies. If the best are near 1, the axis is logarithmic in the error: 0.9, 0.99, 0.999. */
function rightAxis(low, high, values) {
	/* An accuracy of 1 has no logarithm: it is drawn slightly above the others. */
	const best = Math.min(0.99999, values.filter((value) => value < 1).pop() || low);
	if (best <= 0.95 || low >= 0.9)
		return roundAxis(Math.max(Math.min(low, high - 0.05), 0), Math.min(high, 1), 100, "top 1, %");
	const least = (1 - best) / 1.3, scale = (value) => -Math.log10(Math.max(1 - value, least));
	const right = [0, 20, 50, 80, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99, 99.999];
	const ticks = right.map((value) => [value / 100, value]);
	return axis(scale, scale(low) - 0.03, scale(1) + 0.03,
		ticks.filter(([value]) => 1 - value >= least), "top 1, %, spread by the errors left");
}

/*
 * Steps with their positions in epochs, in order. After a resume with another batch or number of ranks
 * an epoch has another number of steps. Pages of older versions have no positions.
 */
const places = [...steps, ...epochs].map(({ total, position }) =>
	({ total, position: position ?? total / run.steps })).sort((a, b) => a.total - b.total);

/* Converts a step to a position in epochs ([from] "total", [to] "position"), or back. */
function convert(value, from, to) {
	const i = places.findIndex((place) => place[from] >= value);
	const next = places[i] || { total: run.steps, position: 1 };
	const before = places[i - 1] || { total: 0, position: 0 }, span = next[from] - before[from];
	return span > 0 ? before[to] + (next[to] - before[to]) * (value - before[from]) / span : next[to];
}

/* Horizontal axis of all charts: steps, or epochs if there are several. */
function stepAxis() {
	const high = Math.max(last(places)?.total ?? 0, 1), first = places[0]?.total ?? 0;
	/* Start at step 0 if the data starts there, even for a resumed run. */
	const low = run.begin === 0 || steps[0]?.epoch === 1 || first < 0.05 * high ? 0
		: Math.min(first, high - 1);
	const range = [low, high].map((total) => convert(total, "total", "position"));
	const byEpoch = range[1] - range[0] >= 1.5, [from, to] = byEpoch ? range : [low, high];
	const step = Math.max(roundStep((to - from) / 8), 1), ticks = [], room = 0.008 * (high - low);
	for (let value = Math.ceil(from / step) * step; value <= to; value += step)
		ticks.push([byEpoch ? convert(value, "position", "total") : value, count(value)]);
	return { ...axis((value) => value, low && low - room, high + room, ticks), low,
		name: byEpoch ? "epoch" : "step" };
}

/* --- Charts --------------------------------------------------------------------------------- */

/*
 * Charts stretch with the page, but lines and text keep their size. Curves are in an SVG of 1000 x
 * 1000 that is scaled without its strokes. Everything else is placed by percentages.
 */
const x = stepAxis();
const finite = (points) => points.filter((point) => point[1] !== null);
const drawn = []; /* data of each chart for the pointer's readout */

/*
 * Path of an SVG through [points], which are [step, value, epoch]; a null value is a gap. [held]: the
 * first value of an epoch applies to all steps since the last point.
 */
function path(points, y, isHeld) {
	let text = "", pen = false, lastEpoch;
	for (const [step, value, epoch] of points) {
		const held = isHeld && epoch !== lastEpoch;
		if (value !== null) {
			const across = (1000 * x.place(step)).toFixed(1);
			const down = (1000 * (1 - y.place(value))).toFixed(1);
			text += !pen ? `M${across},${down}` : held ? `V${down}H${across}` : `L${across},${down}`;
		}
		pen = value !== null;
		lastEpoch = epoch;
	}
	return text;
}

/* Path of the area between two curves. [rows] are [step, minimum, maximum]. */
function band(rows, y) {
	const there = path(rows.map(([step, , high]) => [step, high]), y);
	return there + path(rows.map(([step, low]) => [step, low]).reverse(), y).replace("M", "L") + "Z";
}

function drawSeries(one, y) {
	/* A point is a mean over the steps before it, so the first one applies to the first steps. */
	const first = one.dots ? [] : [[x.low, ...one.points[0].slice(1)]];
	const line = path([...first, ...one.points], y, one.held), kind = one.faint ? "faint" : "line";
	return html`${one.band ? html`<path class="band ${one.tone}" d="${band(one.band, y)}"/>` : ""}
		<path class="${kind} ${one.tone}" d="${line}"/>
		${one.dots ? html`<path class="dots ${one.tone}"
			d="${line.replace(/[ML]([^ML]*)/g, "M$1h0")}"/>` : ""}`;
}

function drawAxes(y) {
	const levels = y.ticks.map(({ at, label }) => html`
		<line x1="0" x2="100%" y1="${100 - 100 * at}%" y2="${100 - 100 * at}%"/>
		<text x="-8" y="${100 - 100 * at}%" dy=".33em" text-anchor="end">${label}</text>`);
	const places = x.ticks.map(({ at, label }) => html`
		<text x="${100 * at}%" y="100%" dy="1.5em" text-anchor="middle">${label}</text>`);
	return html`<g class="axes" aria-hidden="true">${levels}${places}
		<text x="100%" y="100%" dy="2.9em" text-anchor="end">${x.name}</text></g>`;
}

const legend = (rows) => html`<span class="legend">${rows.map(([tone, name]) =>
	html`<span><i class="${tone}"></i>${name}</span> `)}</span>`;

/*
 * Makes the figure of a chart, or nothing if there are no points. [scale] makes the vertical axis from
 * the sorted values. [given] has the series: {name, tone, points}, optionally with held, dots, band, or
 * faint (a thin curve, one of many).
 */
function chart(id, title, scale, given, { note = "", unit = "", factor = 1 } = {}) {
	const series = given.filter((one) => finite(one.points).length);
	const named = series.filter((one) => !one.faint);
	const values = series.flatMap((one) => finite(one.points).map((point) => point[1]));
	if (!values.length)
		return "";
	values.sort((a, b) => a - b);
	const y = scale(values[0], last(values), values);
	const show = (value) => (Math.abs(value * factor) >= 1000 ? count(value * factor)
		: String(Number((value * factor).toPrecision(4)))) + unit;
	const words = named.map(({ name, points }) => {
		const [first, end] = [finite(points)[0], last(finite(points))];
		return `${name}: from ${show(first[1])} at step ${first[0]} to ${show(end[1])} at step ${end[0]}. `;
	});
	const bad = named.filter(({ points }) => finite(points).length < points.length);
	drawn.push({ id, y, show, series: named.map((one) => ({ ...one, points: finite(one.points) })) });
	return html`<figure class="chart" id="${id}"><figcaption><h2>${title}</h2>
		${named.length > 1 ? legend(named.map((one) => [one.tone, one.name])) : ""}
		<small>${note || y.note}</small></figcaption>
		<div class="plot"><svg class="frame" role="img" tabindex="0" aria-label="${title}"
			width="100%" height="220"><desc>${words}</desc>${drawAxes(y)}
		<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" width="100%" height="100%">
		${[...series].reverse().map((one) => drawSeries(one, y))}</svg></svg>
		<div class="read" aria-live="polite" hidden></div></div>
		${bad.map(({ name, points }) => html`<p class="bad">${name}: not finite (nan or inf) from step
			${count(points.find((point) => point[1] === null)[0])} on</p>`)}</figure>`;
}

/* Shows the values at the pointer, or at the position that the arrow keys select. */
function readOut({ id, y, show, series }) {
	const frame = document.querySelector(`#${id} .frame`), box = document.querySelector(`#${id} .read`);
	const main = series[0].points, marks = document.createElementNS(frame.namespaceURI, "g");
	const far = (point, place) => Math.abs(x.place(point[0]) - place);
	const nearest = (points, place) => points.reduce((best, point, i) =>
		far(point, place) < far(points[best], place) ? i : best, 0);
	let at = -1;

	const hide = () => {
		marks.innerHTML = "";
		box.hidden = true;
		at = -1;
	};
	const read = (i) => {
		const [step] = main[i], place = x.place(step), across = 100 * place + "%";
		/* Leave out values that are far from this step, such as those of an evaluation. */
		const near = series.map((one) => ({ ...one, point: one.points[nearest(one.points, place)] }))
			.filter(({ point }) => far(point, place) < 0.06);
		at = i;
		marks.innerHTML = html`<line class="cursor" x1="${across}" x2="${across}" y1="0" y2="100%"/>
			${near.map(({ tone, point }) => html`<circle class="point ${tone}" r="5"
				cx="${100 * x.place(point[0])}%" cy="${100 - 100 * y.place(point[1])}%"/>`)}`;
		box.innerHTML = html`<b>step ${count(step)} (epoch ${convert(step, "total", "position").toFixed(2)})</b>
			${near.map(({ tone, name, point }) =>
				html`<div><i class="${tone}"></i>${name} ${show(point[1])}</div>`)}`;
		box.hidden = false;
		box.style.left = place > 0.5 ? "auto" : `calc(${across} + 12px)`;
		box.style.right = place > 0.5 ? `calc(${100 - 100 * place}% + 12px)` : "auto";
	};
	frame.append(marks);
	frame.addEventListener("pointermove", (event) => {
		const where = frame.getBoundingClientRect();
		read(nearest(main, (event.clientX - where.left) / where.width));
	});
	frame.addEventListener("pointerleave", hide);
	frame.addEventListener("blur", hide);
	frame.addEventListener("keydown", (event) => {
		const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
		if (event.key === "Escape")
			hide();
		if (!move)
			return;
		event.preventDefault();
		read(Math.min(Math.max((at >= 0 ? at : main.length - 1) + move, 0), main.length - 1));
	});
}

/* --- List of charts ------------------------------------------------------------------------- */

const curve = (rows, key) => rows.map((one) => [one.total, one[key]]);

/* Series of [key] in training and test. [i]: index of [key] in the minima and maxima of merged steps. */
function trainAndTest(key, i) {
	const rows = steps.filter((one) => one.low && one.low[i] !== null);
	return [{ name: "train", tone: "c0", points: curve(steps, key),
		band: rows.length > 1 && rows.map((one) => [one.total, one.low[i], one.high[i]]) },
	{ name: "test", tone: "c1", dots: true,
		points: curve(epochs.filter((one) => one.evaluated), "test_" + key) }];
}

/* A chart of values that may change within an epoch, and jump at its end. */
function heldChart(id, title, key, tone) {
	const points = steps.filter((one) => key in one).map((one) => [one.total, one[key], one.epoch]);
	return chart(id, title, fromZero, [{ name: title, tone, held: true, points }]);
}

/* Seconds in which a rank works and does not wait. Times with waiting are equal on all ranks. */
const work = (rank) => rank.data + rank.compute;

function ranksChart() {
	const rows = steps.filter((one) => one.speeds);
	const of = (choose) => rows.map((one) => [one.total, choose(one.speeds)]);
	const each = run.size > SHOWN ? [] : run.ranks.map(({ node, rank }) =>
		({ name: `${node}:${rank}`, tone: "c" + rank, points: of((speeds) => speeds[rank]) }));
	const own = "img/s in its own work, without waiting for the others";
	/* Speeds of ranks are similar, so the axis need not start at 0. */
	const scale = (low, high) => roundAxis(low > 0.5 * high ? low - 0.1 * (high - low) : 0, high);
	if (run.size <= NAMED)
		return chart("ranks-speed", "Speed of each rank", scale, each, { note: own, unit: " img/s" });
	const sorted = (part) => of((speeds) =>
		[...speeds].sort((a, b) => a - b)[Math.floor(part * (speeds.length - 1))]);
	const [least, median, most] = [sorted(0), sorted(0.5), sorted(1)];
	/* With many curves the lowest cannot be identified, so name the slowest rank. */
	const slowest = ranks.filter((rank) => rank.samples > 0)
		.sort((a, b) => work(b) / b.samples - work(a) / a.samples)[0];
	return chart("ranks-speed", "Speed of each rank", scale, [
		{ name: "median", tone: "c0", points: median,
			band: least.map((point, i) => [...point, most[i][1]]) },
		{ name: "fastest", tone: "c2", points: most }, { name: "slowest", tone: "c1", points: least },
		...each.map((one) => ({ ...one, tone: "c0", faint: true }))], { unit: " img/s",
		note: own + (slowest ? `; the slowest over all is ${slowest.node}:${slowest.rank}` : "") });
}

/* --- Time by activity ----------------------------------------------------------------------- */

const PARTS = { "compute": "compute", "all-reduce": "all_reduce", "data": "data",
	"evaluation": "evaluation", "other": "other" };

/* Fractions of the run's time by activity. The maximum keeps their sum at 1 if clocks differ slightly. */
function shares(rank) {
	const known = work(rank) + rank.all_reduce + rank.evaluation;
	const seconds = Math.max(now.seconds, known, 1e-9), times = { ...rank, other: seconds - known };
	return Object.entries(PARTS).map(([name, key]) => ({ name, part: times[key] / seconds }));
}

function timesBar(rank) {
	const pieces = shares(rank).map(({ name, part }) =>
		({ name, part, text: `${name} ${percent(part, 1)}, ${duration(part * now.seconds)}` }));
	return html`<div class="bar"><span>${rank.node}:${rank.rank}</span>
		<div role="img" aria-label="rank ${rank.rank}: ${pieces.map(({ text }) => text).join("; ")}">
		${pieces.map(({ name, part, text }) => html`<i class="p-${name}" style="width: ${100 * part}%"
			title="rank ${rank.rank}: ${text}"></i>`)}</div>
		<span>${percent(pieces[0].part, 1)}</span></div>`;
}

function timesFigure() {
	/* If there are too many ranks, show those that work longest: the others wait for them. */
	const shown = [...ranks].sort((a, b) => work(b) - work(a)).slice(0, SHOWN)
		.sort((a, b) => a.rank - b.rank);
	const some = run.size > SHOWN ? `; the ${SHOWN} of ${run.size} ranks that worked longest` : "";
	return html`<figure class="times ${shown.length > 16 ? "dense" : ""}" id="times">
		<figcaption><h2>Where the time went</h2>
		${legend(Object.keys(PARTS).map((name) => ["p-" + name, name]))}
		<small>share of ${duration(now.seconds)} for each rank; at the right, compute${some}</small>
		</figcaption>${shown.map(timesBar)}</figure>`;
}

/* --- Tables --------------------------------------------------------------------------------- */

/* Makes a table. In [heads], names of text columns end with "<". [rows] are [class, cells]. */
function table(id, title, heads, rows, note) {
	const cell = (i) => heads[i].endsWith("<") ? "w" : "";
	return html`<section id="${id}"><h2>${title}</h2><div class="scroll"><table><thead><tr>
		${heads.map((head, i) => html`<th class="${cell(i)}">${head.replace("<", "")}</th>`)}
		</tr></thead><tbody>${rows.map(([kind, cells]) => html`<tr class="${kind}">
			${cells.map((text, i) => html`<td class="${cell(i)}">${text}</td>`)}</tr>`)}
		</tbody></table></div><p class="sub">${note}</p></section>`;
}

const some = (number, what) => number ? `The first ${count(number)} ${what} are not shown.` : "";

function epochsTable() {
	const heads = ["epoch", "train loss", "train top 1", "test loss", "test top 1", "test top 5",
		"training", "img/s", "evaluation"];
	return table("epochs", "Epochs", heads, epochs.map((one) => [
		one.evaluated && one.epoch === now.best_epoch ? "best" : "", [
			count(one.epoch), loss(one.train_loss), percent(one.train_top1),
			...one.evaluated ? [loss(one.test_loss), percent(one.test_top1), percent(one.test_top5)]
				: ["", "", ""],
			duration(one.seconds), count(one.images_per_second),
			one.evaluated ? duration(one.evaluation) : ""]]), some(leftOut.epochs, "epochs"));
}

function ranksTable() {
	const row = (rank, name, kind) => {
		const [compute, reduce, data, test, other] = shares(rank).map(({ part }) => percent(part, 1));
		return [kind, [name, rank.node, rank.device, count(rank.threads),
			count(now.training > 0 ? rank.samples / now.training : 0), data, compute, reduce, test,
			other, bytes(rank.resident)]];
	};
	const rows = ranks.map((rank) => row(rank, rank.rank, ""));
	const whole = { device: "", node: `${count(run.nodes)} node${run.nodes === 1 ? "" : "s"}` };
	for (const key of ["threads", "samples", "resident", "data", "compute", "all_reduce", "evaluation"])
		whole[key] = ranks.reduce((sum, rank) => sum + rank[key], 0);
	for (const key of ["data", "compute", "all_reduce", "evaluation"])
		whole[key] /= run.size;
	return table("ranks", "Ranks", ["rank", "node<", "device<", "threads", "img/s", "data", "compute",
		"all-reduce", "evaluation", "other", "memory"],
	run.size > 1 ? [...rows, row(whole, "all", "sum")] : rows, "img/s: samples by seconds of training, " +
		"evaluation and checkpoints left out; shares are of all the time");
}

/* --- Page ----------------------------------------------------------------------------------- */

const pairs = (id, title, kind, rows) => rows.length ? html`<section id="${id}"><h2>${title}</h2>
	<dl class="pairs ${kind}">${rows.map(([key, value]) =>
	html`<div><dt>${key}</dt><dd>${value || "–"}</dd></div>`)}</dl></section>` : "";

function header() {
	const facts = [run.job && "job " + run.job, run.engine, "started " + date(run.time), run.begin &&
		`resumed at step ${count(run.begin)}; times and ranks are since then`];
	const position = epochs.length ? `after epoch ${last(epochs).epoch} of ${run.epochs}`
		: "before the end of the first epoch";
	const state = now.event === "end" ?
		html`<p class="state ${["finished", "evaluated"].includes(now.reason) ? "good" : "early"}">
			${now.reason}</p>`
		: html`<p class="state going">not ended</p><p class="sub">State at
			${date(now.time)}, ${position}. The page is rewritten after each epoch.</p>`;
	return html`<header><h1>${run.title}</h1>${state}
		<p class="sub">${facts.filter((fact) => fact).join(" · ")}</p>
		<p class="command"><code>${run.command || ""}</code></p></header>`;
}

function tiles() {
	const tile = (name, value, more) =>
		html`<div><dt>${name}</dt><dd>${value}<small>${more}</small></dd></div>`;
	const losses = finite(curve(steps, "loss"));
	return html`<dl class="tiles">
		${now.best_epoch && !evaluation ? tile("Best accuracy", percent(now.best_top1),
			`test, after epoch ${now.best_epoch}`) : ""}
		${evaluation ? [tile("Accuracy", percent(evaluation.test_top1), `test, top 1; top 5 ${
			percent(evaluation.test_top5)}`), tile("Loss", loss(evaluation.test_loss),
			`test, of ${count(evaluation.test_samples)} samples`)] : ""}
		${losses.length ? tile("Loss", loss(last(losses)[1]), "train, at last") : ""}
		${now.samples ? tile("Throughput", count(now.images_per_second), "img/s while training") : ""}
		${tile("Time", duration(now.seconds), "all in all")}
		${tile(run.size > 1 ? "Ranks" : "Rank", count(run.size),
			`on ${count(run.nodes)} node${run.nodes > 1 ? "s" : ""}`)}
		${evaluation ? "" : tile("Step", count(run.batch), `samples, ${count(run.steps)} an epoch`)}
		</dl>`;
}

function main() {
	const worked = ranks.some((rank) => work(rank) || rank.evaluation);
	return html`<main>${tiles()}<div class="charts ${run.size <= NAMED ? "few" : "many"}">
		${evaluation ? "" : [chart("loss", "Loss", lossAxis, trainAndTest("loss", 0)),
			chart("accuracy", "Accuracy", rightAxis, trainAndTest("top1", 1),
				{ unit: " %", factor: 100 })]}
		${chart("throughput", "Throughput", fromZero,
			[{ name: "Throughput", tone: "c0", points: curve(steps, "images_per_second") }],
			{ note: "img/s of all ranks together, while training", unit: " img/s" })}
		${run.size > 1 ? ranksChart() : ""}
		${heldChart("rate", "Learning rate", "lr", "c3")}
		${heldChart("scale", "Loss scale", "scale", "c4")}
		${worked ? timesFigure() : ""}</div>
		${epochs.length && !evaluation ? epochsTable() : ""}
		${worked ? ranksTable() : ""}
		${pairs("configuration", "Configuration", "", Object.entries(run.configuration))}
		${pairs("files", "Files", "wide",
			[["checkpoint", now.checkpoint], ["model", now.model]].filter((row) => row[1]))}
		${says.length ? html`<section id="log"><h2>Log</h2><ol>${says.map((say) =>
			html`<li><time>${duration((Date.parse(say.time) - Date.parse(run.time)) / 1000)}</time>
				${say.text}</li>`)}</ol><p class="sub">${some(leftOut.says, "lines")}</p></section>` : ""}
		</main><footer>ddp-train ${run.version}</footer>`;
}

document.title = run.title;
document.body.insertAdjacentHTML("beforeend", header() + main());
drawn.forEach(readOut);
