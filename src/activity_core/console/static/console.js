"use strict";
// Everything is rendered as text: what the API answers holds whatever senders wrote.
const EVERY_MS = 3000;
const TONES = {
  completed: "good", started: "good", in_sync: "good", failed: "bad", terminated: "bad", timed_out: "bad", lost: "bad", error: "bad",
  filter_error: "bad", dead_letter: "bad", dropped: "bad", waiting: "busy", running: "busy", pending: "busy", delivering: "busy",
};

function element(name, content, tone) {
  const made = document.createElement(name);
  if (content instanceof Node) made.append(content);
  else made.textContent = content ?? "";
  if (tone) made.className = tone;
  return made;
}
const mark = (word) => element("span", word, `mark ${TONES[word] ?? "quiet"}`);
function instant(text) {
  if (!text) return "–";
  const made = element("time", new Date(text).toLocaleString());
  made.dateTime = text;
  made.title = text;
  return made;
}

function fill(id, rows, empty) {
  const body = document.querySelector(`#${id} tbody`);
  const made = rows.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((cell) => element("td", cell)));
    return row;
  });
  if (!made.length) {
    const cell = element("td", empty, "empty");
    cell.colSpan = document.querySelectorAll(`#${id} th`).length;
    const row = document.createElement("tr");
    row.append(cell);
    made.push(row);
  }
  body.replaceChildren(...made);
}

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.detail ?? answer.statusText);
  return value;
}

function seconds(run) {
  if (!run.finished_at) return "";
  return `${((Date.parse(run.finished_at) - Date.parse(run.started_at)) / 1000).toFixed(1)} s`;
}
function trigger(spec) {
  const { type, cron, timezone, event_types: types } = spec.trigger;
  if (type === "cron") return element("code", `${cron} ${timezone}`);
  return type === "event" ? element("code", types.join(", ")) : type;
}
function occurrence(row) {
  if (row.kind === "event") return element("code", row.event_id);
  return row.kind === "time" ? "time" : "manual request";
}

async function answer(path, body) {
  try {
    await ask(path, body);
  } catch (error) {
    window.alert(error.message);
  }
  await refresh();
}
function buttons(task) {
  const made = document.createElement("span");
  const complete = element("button", "Complete");
  complete.setAttribute("aria-label", `Complete task ${task.task_type} of ${task.slug}`);
  complete.addEventListener("click", () => answer(`/v1/tasks/${task.id}/complete`, {}));
  const fail = element("button", "Fail …");
  fail.setAttribute("aria-label", `Fail task ${task.task_type} of ${task.slug}`);
  fail.addEventListener("click", () => {
    const reason = window.prompt("Why does this task fail?");
    if (reason) answer(`/v1/tasks/${task.id}/fail`, { reason });
  });
  made.append(complete, " ", fail);
  return made;
}

let shown = "";
async function refresh() {
  const state = document.getElementById("state");
  try {
    const [inbox, activities, ledger, runs] = await Promise.all([
      ask("/v1/tasks?consumer=inbox&state=waiting&limit=50"), ask("/v1/activities?limit=100"), ask("/v1/occurrences?limit=25"), ask("/v1/runs?limit=25"),
    ]);
    state.textContent = `As of ${new Date().toLocaleTimeString()}`;
    state.className = "";
    const now = JSON.stringify([inbox, activities, ledger, runs]);
    if (now === shown) return; // nothing changed: leave the focus where it is
    shown = now;
    document.getElementById("n-inbox").textContent = inbox.items.length ? `(${inbox.items.length}${inbox.next_cursor ? "+" : ""})` : "";
    fill("inbox", inbox.items.map((t) => [t.task_type, t.slug, element("code", JSON.stringify(t.params)), instant(t.created_at), buttons(t)]), "Nothing waits for you.");
    fill("activities", activities.items.map((a) => [
      a.spec.name ? `${a.spec.name} (${a.slug})` : a.slug, trigger(a.spec), a.state.enabled ? "enabled" : mark("disabled"), instant(a.schedule.next), String(a.revision),
    ]), "No activities yet.");
    fill("ledger", ledger.items.map((o) => [instant(o.due_at), o.slug, occurrence(o), mark(o.outcome), o.reason]), "Nothing has been due yet.");
    fill("runs", runs.items.map((r) => [
      instant(r.started_at), r.slug, mark(r.status), r.reason ? `${r.result ?? ""} ${r.reason}` : r.result, `${r.tasks.completed} of ${r.tasks.total} completed`, seconds(r),
    ]), "No runs yet.");
  } catch (error) {
    state.textContent = `The API does not answer: ${error.message}`;
    state.className = "bad";
  }
}

async function loop() {
  if (!document.hidden) await refresh();
  setTimeout(loop, EVERY_MS);
}
loop();
