-- What wrk sends, and what it says at the end: a line of JSON.
wrk.method = os.getenv("LOAD_METHOD")
local path = os.getenv("LOAD_BODY")
if path ~= "" then
  local file = assert(io.open(path, "rb"))
  wrk.body = file:read("*a")
  file:close()
  wrk.headers["Content-Type"] = os.getenv("LOAD_TYPE")
end
wrk.headers["Accept"] = "*/*"
wrk.headers["User-Agent"] = "bench"

function done(summary, latency)
  local e = summary.errors
  -- wrk prints its own summary before this.
  print(string.format(
    '{"requests":%d,"duration":%f,"bytes":%d,"mean":%f,"p50":%f,"p99":%f,"errors":%d}',
    summary.requests, summary.duration / 1e6, summary.bytes,
    latency.mean / 1e3, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.status + e.timeout
  ))
end
