-- Request bodies for wrk, one after the other. $BODIES names a file with bodies between record separators.
-- The mark @QID@ in a body becomes a new number for each request.
local MARK, SEPARATOR = "@QID@", "\30"
local heads, tails, fixed = {}, {}, {}
local fields = { ["Content-Type"] = "application/json" }
local turn, number = 0, 0

local file = assert(io.open(os.getenv("BODIES"), "rb"))
for body in file:read("*a"):gmatch("[^" .. SEPARATOR .. "]+") do
  local first, last = body:find(MARK, 1, true)
  heads[#heads + 1] = first and body:sub(1, first - 1) or body
  tails[#heads] = first and body:sub(last + 1) or false
end
file:close()

function init()
  for at, body in ipairs(heads) do
    if not tails[at] then fixed[at] = wrk.format("POST", nil, fields, body) end
  end
end

function request()
  turn = turn % #heads + 1
  if fixed[turn] then return fixed[turn] end
  number = number + 1
  return wrk.format("POST", nil, fields, heads[turn] .. ("%09d"):format(number) .. tails[turn])
end

function done(summary, latency)
  local wrong = summary.errors
  local failed = wrong.connect + wrong.read + wrong.write + wrong.timeout + wrong.status
  io.write(("FOUND %d %d %.1f %.3f %.3f\n"):format(summary.requests, failed, summary.requests * 1e6 / summary.duration,
    latency:percentile(50), latency:percentile(99)))
end
