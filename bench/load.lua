-- Sets the requests that wrk sends, and makes wrk print its results as a line of JSON at the end.
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

-- wrk itself counts only statuses from 400 on as errors, so `response` checks the status. wrk copies each response for it.
wrong = 0
if os.getenv("LOAD_STATUS") ~= "" then
  local expected = tonumber(os.getenv("LOAD_STATUS"))
  function response(status)
    if status ~= expected then wrong = wrong + 1 end
  end
end

-- Each thread has its own variables, such as `wrong`.
local threads = {}
function setup(thread)
  table.insert(threads, thread)
end

function done(summary, latency)
  local e = summary.errors
  local status = e.status
  for _, thread in ipairs(threads) do
    status = math.max(status, thread:get("wrong"))
  end
  -- wrk prints its own summary before this.
  print(string.format(
    '{"requests":%d,"duration":%f,"bytes":%d,"mean":%f,"p50":%f,"p99":%f,"errors":%d}',
    summary.requests, summary.duration / 1e6, summary.bytes,
    latency.mean / 1e3, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.timeout + status
  ))
end
