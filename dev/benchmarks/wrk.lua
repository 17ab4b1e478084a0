-- Posts the file that the script is given, and ends with a line that load.py reads.
function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  wrk.method = "POST"
  wrk.body = file:read("*a")
  file:close()
end

function done(summary, latency, requests)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  print(string.format("row %.3f %.4f %.4f %d", summary.requests / summary.duration * 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, failed))
end
