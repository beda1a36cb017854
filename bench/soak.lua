-- Requests of load.lua, with all figures that a long run is judged by.
dofile(os.getenv("LOAD"))

function done(summary, latency)
  local e = summary.errors
  io.write(("FOUND %d %d %d %d %d %d %.1f %.3f %.3f %.3f %.3f\n"):format(summary.requests, e.connect, e.read, e.write,
    e.status, e.timeout, summary.requests * 1e6 / summary.duration, latency:percentile(50), latency:percentile(99),
    latency:percentile(99.9), latency.max))
end
