#include "agent/workers/streams.h"

#include <algorithm>
#include <future>
#include <utility>

#include "base/log.h"
#include "codec/digest.h"
#include "codec/json.h"
#include "net/proxy_protocol.h"
#include "net/url.h"

namespace varda::agent::workers {
namespace {

using codec::Json;

constexpr std::string_view kPorts = "stream-ports";  // {"NAMESPACE/NAME STREAM": port}
// Outside the usual ranges of source ports (from 32768) and of node ports (from 30000).
constexpr int kPortFirst = 20000, kPortCount = 10000, kPortTries = 32;

/// The same for the same stream, so that even a lost database changes no port.
int favourite_port(const std::string& name) {
  const auto digest = codec::Sha256::of(name).hex();
  return kPortFirst + static_cast<int>(std::stoul(digest.substr(0, 7), nullptr, 16) % kPortCount);
}

int port_of(const std::string& address) {
  return std::atoi(address.substr(address.rfind(':') + 1).c_str());
}

bool is_loopback_host(const std::string& host) {
  return host.starts_with("127.") || host == "localhost" || host == "[::1]";
}

}  // namespace

std::string Streams::Known::grant() const {
  return uid + "\n" + stream.name + "\n" + stream.address + "\n" + (stream.identity ? "1" : "0");
}

Streams::Streams(Options options, core::StateStore& state_store)
    : options_(std::move(options)),
      state_store_(state_store),
      splicer_({.pairs_max = options_.all_max, .idle_timeout = options_.idle_timeout}),
      slots_(splicer_, {.per_group = options_.per_worker_max, .all = options_.all_max}),
      pool_({.threads = options_.threads, .queue_max = options_.all_max}) {
  if (!is_loopback_host(options_.listen_host))
    log::warn("streams of workers listen without a token on this address",
              {{"address", options_.listen_host}});
}

Streams::~Streams() { stop(); }

void Streams::stop() {
  stop_.request_stop();
  std::map<Id, Port> ports;
  {
    const MutexLock lock(mutex_);
    ports.swap(ports_);
    known_.clear();
  }
  ports.clear();
  splicer_.stop();
}

void Streams::set_workers(const std::vector<api::EdgeWorker>& workers) {
  std::map<Id, Known> next;
  std::map<std::string, std::set<std::string>> grants;
  std::set<Id> listening;
  for (const api::EdgeWorker& worker : workers) {
    std::size_t count = 0;
    for (const api::EdgeStream& stream : worker.streams) {
      if (++count > api::EdgeStream::kMax) break;
      const Id id{worker.key, stream.name};
      const Known known{worker.uid, stream};
      grants[worker.key].insert(known.grant());
      if (stream.listen) listening.insert(id);
      next.insert_or_assign(id, known);
    }
  }
  {
    const MutexLock lock(mutex_);
    if (stop_.stop_requested()) return;
    for (const auto& [id, known] : known_) grants.try_emplace(id.first);
    known_ = std::move(next);
  }
  for (const auto& [key, allowed] : grants)
    if (slots_.has(key)) slots_.keep_only(key, allowed);
  update_ports(listening);
}

void Streams::update_ports(const std::set<Id>& wanted) {
  std::map<Id, Port> gone;
  std::vector<Id> missing;
  {
    const MutexLock lock(mutex_);
    for (auto at = ports_.begin(); at != ports_.end();) {
      // A port that could not be opened is tried again with each list.
      if (wanted.contains(at->first) && at->second.listener) {
        ++at;
      } else {
        gone.insert(ports_.extract(at++));
      }
    }
    for (const Id& id : wanted)
      if (!ports_.contains(id)) missing.push_back(id);
  }
  // A listener's end waits for its thread, so no lock is held here.
  bool forgets = false;
  for (const auto& [id, port] : gone) forgets = forgets || !wanted.contains(id);
  gone.clear();
  if (missing.empty() && !forgets) return;
  const auto stored = state_store_.get(kPorts);
  if (!stored.ok()) log::warn("ports of streams cannot be read", {{"error", stored.error()}});
  Json saved = stored.ok() && stored->is_object() ? *stored : Json::object();
  for (const Id& id : missing) {
    Port port = open_port(id, saved);
    const MutexLock lock(mutex_);
    ports_.insert_or_assign(id, std::move(port));
  }
  std::set<std::string> names;
  for (const Id& id : wanted) names.insert(id.first + " " + id.second);
  Json kept = Json::object();
  for (const std::string& name : names)
    if (const Json* port = std::as_const(saved).find(name)) kept.set(name, *port);
  if (const Status written = state_store_.put(kPorts, kept); !written.ok())
    log::warn("ports of streams cannot be saved", {{"error", written.error()}});
}

Streams::Port Streams::open_port(const Id& id, Json& saved) {
  const std::string name = id.first + " " + id.second;
  std::vector<int> candidates;
  if (const Json* port = std::as_const(saved).find(name))
    candidates.push_back(static_cast<int>(port->as_integer()));
  for (int i = 0; i < kPortTries; ++i)
    candidates.push_back(kPortFirst + (favourite_port(name) - kPortFirst + i) % kPortCount);
  candidates.push_back(0);
  Port out;
  for (const int candidate : candidates) {
    if (candidate < 0 || candidate > 65535) continue;
    auto listener = splicer_.listen(
        options_.listen_host + ":" + std::to_string(candidate),
        [this, id](std::unique_ptr<net::Tunnel> worker) { accepted(id, std::move(worker)); });
    if (!listener.ok()) {
      out.message = listener.error().message();
      continue;
    }
    out.address = (*listener)->address();
    out.message.clear();
    out.listener = std::move(*listener);
    saved.set(name, port_of(out.address));
    log::info("port of a stream opened",
              {{"worker", id.first}, {"stream", id.second}, {"address", out.address}});
    return out;
  }
  log::error("port of a stream cannot be opened",
             {{"worker", id.first}, {"stream", id.second}, {"error", out.message}});
  return out;
}

std::vector<api::EdgeStreamReport> Streams::report(const std::string& key,
                                                   const std::string& uid) const {
  std::vector<api::EdgeStreamReport> out;
  const MutexLock lock(mutex_);
  for (const auto& [id, port] : ports_) {
    if (id.first != key) continue;
    const auto known = known_.find(id);
    if (known == known_.end() || known->second.uid != uid) continue;
    out.push_back(
        {.name = id.second, .address = port.address, .message = port.message, .unknown = {}});
  }
  return out;
}

std::optional<Streams::Known> Streams::find(const Id& id, const std::string& uid) const {
  const MutexLock lock(mutex_);
  const auto found = known_.find(id);
  if (found == known_.end() || found->second.uid != uid) return std::nullopt;
  return found->second;
}

void Streams::accepted(const Id& id, std::unique_ptr<net::Tunnel> worker) {
  std::string uid;
  {
    const MutexLock lock(mutex_);
    const auto found = known_.find(id);
    if (found == known_.end()) return;
    uid = found->second.uid;
  }
  const auto held = std::make_shared<std::unique_ptr<net::Tunnel>>(std::move(worker));
  open(id.first, uid, id.second, [held, id](Result<Start> start) {
    if (start.ok()) return (*start)(std::move(*held));
    log::info("stream of a worker not opened",
              {{"worker", id.first}, {"stream", id.second}, {"error", start.error()}});
  });
}

void Streams::open(const std::string& key, const std::string& uid, const std::string& stream,
                   OnOpened then) {
  const auto call = std::make_shared<OnOpened>(std::move(then));
  pool_.wrap([this, key, uid, stream, call](const net::Request&) {
    (*call)(connect(key, uid, stream));
    return net::Response();
  })(net::Request(), net::Responder([call](const net::Response& response) {
       // The pool refuses what its queue cannot hold.
       if (response.status != 200)
         (*call)(Error(Code::kUnavailable, "too many streams wait for a connection"));
     }));
}

Result<Streams::Start> Streams::connect(const std::string& key, const std::string& uid,
                                        const std::string& stream) {
  const Id id{key, stream};
  const auto missing = [&] {
    return Error(Code::kNotFound,
                 "worker " + key + " has no stream \"" + stream.substr(0, 63) + "\"");
  };
  if (stop_.stop_requested()) return Error(Code::kUnavailable, "the agent is stopping");
  const auto known = find(id, uid);
  if (!known) return missing();
  const auto slot = slots_.reserve(key, known->grant());
  if (!slot)
    return Error(Code::kUnavailable, "worker " + key + " or this node has too many open streams");
  // A list that came before the reservation has not seen the slot.
  const auto again = find(id, uid);
  if (!again || again->grant() != known->grant()) return missing();
  auto target = options_.gateway != nullptr ? reach_gateway(id) : reach_target(*known);
  if (!target.ok()) return std::move(target).error();
  std::string preamble;
  if (options_.gateway == nullptr && known->stream.identity) {
    net::ProxyHeader header;
    net::add_identity(header, {.node = options_.node_name, .worker = key, .job_uid = uid});
    TRY(preamble, net::write_proxy_header(header));
  }
  const auto far = std::make_shared<std::unique_ptr<net::Tunnel>>(std::move(*target));
  return Start([this, id, slot, far, preamble](std::unique_ptr<net::Tunnel> worker) {
    slot->attach(splicer_.splice(
        {.first = std::move(worker),
         .second = std::move(*far),
         .preamble = preamble,
         .on_end = [id, slot](const net::Splicer::Report& report) {
           log::info("stream ended", {{"worker", id.first},
                                      {"stream", id.second},
                                      {"end", slot->revoked() ? "revoked" : to_string(report.end)},
                                      {"error", report.error},
                                      {"bytes_up", report.forward_bytes},
                                      {"bytes_down", report.backward_bytes}});
         }}));
  });
}

Result<std::unique_ptr<net::Tunnel>> Streams::reach_gateway(const Id& id) {
  const net::TunnelRequest request{.url = options_.gateway_url +
                                          "/v1/streams?worker=" + net::percent_encode(id.first) +
                                          "&stream=" + net::percent_encode(id.second),
                                   .headers = {}};
  const Context ctx = Context(stop_.get_token()).with_timeout(options_.connect_timeout);
  auto answer = options_.gateway->open(ctx, request);
  if (!answer.ok())
    return Error(Code::kUnavailable, "the gateway is not reachable: " + answer.error().message());
  if (answer->tunnel) return std::move(answer->tunnel);
  const auto body = codec::parse_json(answer->body);
  const std::string message = body.ok() ? (*body)["message"].as_string() : std::string();
  // A list that the gateway has not seen yet, or a target that restarts: the worker tries again.
  return Error(Code::kUnavailable, "the gateway answers " + std::to_string(answer->status) + ": " +
                                       (message.empty() ? "it forwards no streams" : message));
}

Result<std::unique_ptr<net::Tunnel>> Streams::reach_target(const Known& known) {
  if (known.stream.address.empty())
    return Error(Code::kUnavailable, "the address of the stream's target is not known yet");
  const auto promise = std::make_shared<std::promise<Result<std::unique_ptr<net::Tunnel>>>>();
  splicer_.dial(known.stream.address, options_.connect_timeout,
                [promise](Result<std::unique_ptr<net::Tunnel>> tunnel) {
                  promise->set_value(std::move(tunnel));
                });
  auto result = promise->get_future().get();
  if (result.ok()) return result;
  return Error(Code::kUnavailable,
               "the target of the stream is not reachable: " + result.error().message());
}

}  // namespace varda::agent::workers
