// node-pty: the same tasks; the first argument is where the package was found, the rest is key=value.
"use strict";
const fs = require("node:fs");
const pty = require(process.argv[2]);

const work = Object.fromEntries(process.argv.slice(3).map((word) => word.split(/=(.*)/s)));
for (const key of ["reps", "ballast_mb", "bytes", "count"]) work[key] = Number(work[key]);
const ballast = Buffer.alloc(work.ballast_mb << 20, 1);

const microseconds = () => Number(process.hrtime.bigint()) / 1000;
const cpuSeconds = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};
const residentKb = () => {
  if (global.gc) global.gc();
  try {
    return Number(/^Rss:\s+(\d+)/m.exec(fs.readFileSync("/proc/self/smaps_rollup", "ascii"))[1]);
  } catch {
    return process.memoryUsage().rss / 1024;
  }
};
const start = (file, args) => pty.spawn(file, args, { cols: 80, rows: 24, encoding: null });
const ended = (terminal) => new Promise((resolve) => terminal.onExit(resolve));
const at = (sorted, part) => sorted[Math.floor(sorted.length * part)];

const tasks = {
  async "spawn-pty"() {
    const samples = [];
    for (let i = 0; i < work.reps; i++) {
      const started = microseconds();
      await ended(start("/bin/true", []));
      samples.push(microseconds() - started);
    }
    samples.sort((a, b) => a - b);
    return { us: samples[0], typical_us: at(samples, 0.5) };
  },

  async "throughput-pty"() {
    let received = 0;
    const cpu = cpuSeconds();
    const started = microseconds();
    const terminal = start(work.child, ["write", String(work.bytes)]);
    terminal.onData((data) => (received += data.length));
    await ended(terminal);
    const wall = (microseconds() - started) / 1e6;
    const used = cpuSeconds() - cpu;
    // The exit may overtake the last bytes; a second more of listening, outside the clock, is fair.
    await new Promise((resolve) => setTimeout(resolve, 1000));
    return { mb_s: received / 1e6 / wall, cpu_s_per_gb: used / (received / 1e9), lost: work.bytes - received };
  },

  async echo() {
    const terminal = start(work.child, ["echo"]);
    let arrived;
    const next = () => new Promise((resolve) => (arrived = resolve));
    terminal.onData(() => arrived());
    await next();
    const samples = [];
    for (let i = 0; i < work.reps; i++) {
      const started = microseconds();
      const answer = next();
      terminal.write("x");
      await answer;
      samples.push(microseconds() - started);
    }
    terminal.kill("SIGKILL");
    samples.sort((a, b) => a - b);
    return { us: at(samples, 0.5), p99_us: at(samples, 0.99) };
  },

  async scale() {
    const startAll = (count) => Array.from({ length: count }, () => start("/bin/cat", []));
    const killAll = async (terminals) => {
      const ends = terminals.map(ended);
      for (const terminal of terminals) terminal.kill("SIGKILL");
      await Promise.all(ends);
    };
    await killAll(startAll(10));
    const resident = residentKb();
    const cpu = cpuSeconds();
    let started = microseconds();
    const terminals = startAll(work.count);
    const thousands = work.count / 1000;
    const start_s = (microseconds() - started) / 1e6 / thousands;
    const start_cpu_s = (cpuSeconds() - cpu) / thousands;
    const rss_kb_each = (residentKb() - resident) / work.count;
    started = microseconds();
    await killAll(terminals);
    return { start_s, start_cpu_s, rss_kb_each, kill_s: (microseconds() - started) / 1e6 / thousands };
  },
};

tasks[work.task]().then((figures) => {
  if (ballast.length < 0) throw new Error("unreachable: keeps the ballast alive");
  console.log(JSON.stringify(figures));
  process.exit(0);
});
