-- Posts the file in the first argument, and ends with a line that load.py reads.
-- With the second argument "tracing", each request has a new traceparent and x-request-id.
function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  wrk.method = "POST"
  wrk.body = file:read("*a")
  file:close()
  if arguments[2] == "tracing" then
    add_tracing_headers()
  end
end

-- If a script has the function request(), wrk calls it for each request.
function add_tracing_headers()
  local source = assert(io.open("/dev/urandom", "rb"))
  local a, b, c, d = source:read(4):byte(1, 4)
  source:close()
  math.randomseed(((a * 256 + b) * 256 + c) * 256 + d)

  local random, format = math.random, string.format
  local function bits(count)
    return random(0, 2 ^ count - 1)
  end

  local line, rest = wrk.format():match("^(.-\r\n)(.*)$")
  local headers = "traceparent: 00-%08x%08x%08x%08x-%08x%08x-01\r\n"
    .. "x-request-id: %08x-%04x-4%03x-%04x-%08x%04x\r\n"
  function request()
    -- An id must not consist of zeros only, so its last part has a bit that is set.
    return line
      .. format(headers, bits(32), bits(32), bits(32), bits(31) + 2 ^ 31, bits(32), bits(31) + 2 ^ 31,
        bits(32), bits(16), bits(12), bits(14) + 2 ^ 15, bits(32), bits(16))
      .. rest
  end
end

function done(summary, latency, requests)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  print(string.format("row %.3f %.4f %.4f %d", summary.requests / summary.duration * 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, failed))
end
