#include "gateway/streams.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/log.h"
#include "meta/status.h"
#include "net/tunnel.h"
#include "net/url.h"

namespace varda::gateway {

namespace {

using codec::Json;
using net::Request;
using net::Response;

constexpr std::string_view kStreams = "/v1/streams";

Response stream_refusal(int code, const char* reason, std::string message) {
  meta::ApiStatus status;
  status.code = code;
  status.reason = reason;
  status.message = std::move(message);
  Response out{.status = code,
               .headers = {{"Content-Type", "application/json"}},
               .body = codec::write_json(status.to_json()) + "\n"};
  if (code == 503 || code == 429) out.headers.add("Retry-After", "2");
  if (code == 426) out.headers.add("Upgrade", std::string(net::kStreamProtocol));
  return out;
}

Streams::Target target_of(const Json& worker, const Json& stream) {
  return {.worker = worker["key"].as_string(),
          .stream = stream["name"].as_string(),
          .uid = worker["uid"].as_string(),
          .address = stream["address"].as_string(),
          .identity = stream["identity"].as_bool()};
}

/// The worker and the stream that a request names.
Result<std::pair<std::string, std::string>> names_of(const Request& request) {
  std::optional<std::string> worker, stream;
  const net::Query query = net::Query::parse(request.query());
  for (const auto& [name, value] : query.all()) {
    std::optional<std::string>* const into = name == "worker"   ? &worker
                                             : name == "stream" ? &stream
                                                                : nullptr;
    if (into == nullptr || into->has_value())
      return Error(Code::kInvalid, "expected the parameters worker and stream, once each");
    *into = value;
  }
  if (!worker || !stream)
    return Error(Code::kInvalid, "expected the parameters worker and stream, once each");
  return std::pair(std::move(*worker), std::move(*stream));
}

}  // namespace

/// One stream, from the request to its end.
struct Streams::Stream {
  std::string node;
  std::string client;  // address of the node's connection
  Target target;
  std::shared_ptr<net::PairSlots::Slot> slot;
  std::unique_ptr<net::Tunnel> connection;  // to the target, until the stream starts
  std::string preamble;
  std::optional<SteadyTime> until;
  SteadyTime begin;
};

std::string Streams::Target::grant() const {
  return worker + "\n" + stream + "\n" + uid + "\n" + address + "\n" + (identity ? "1" : "0");
}

bool Streams::is_for(const Request& request) { return request.path() == kStreams; }

std::optional<Streams::Target> Streams::find_target(const Json& edge_node, std::string_view worker,
                                                    std::string_view stream) {
  for (const Json& one : edge_node.at("spec/workers").as_array()) {
    if (one["key"].as_string() != worker) continue;
    for (const Json& item : one["streams"].as_array())
      if (item["name"].as_string() == stream) return target_of(one, item);
  }
  return std::nullopt;
}

std::set<std::string> Streams::grants_of(const Json& edge_node) {
  std::set<std::string> out;
  for (const Json& worker : edge_node.at("spec/workers").as_array())
    for (const Json& stream : worker["streams"].as_array())
      out.insert(target_of(worker, stream).grant());
  return out;
}

Streams::Streams(Options options)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : system_clock()),
      opened_({options_.opened_burst, options_.opened_period}),
      splicer_({.threads = options_.threads,
                .pairs_max = options_.all_max,
                .idle_timeout = options_.idle_timeout}),
      slots_(splicer_, {.per_group = options_.per_node_max, .all = options_.all_max}) {
  if (options_.metrics == nullptr) return;
  const auto bytes = [&](const char* direction) {
    return &options_.metrics->counter(
        "varda_gateway_stream_bytes_total",
        "Bytes of ended streams: up from the nodes, down to the nodes.",
        {{"direction", direction}});
  };
  up_bytes_ = bytes("up");
  down_bytes_ = bytes("down");
}

Streams::~Streams() { stop(); }

void Streams::stop() { splicer_.stop(); }

bool Streams::may_open(const std::string& node) {
  const MutexLock lock(mutex_);
  const SteadyTime now = clock_.now();
  if (opened_.wait(node, now).count() > 0) return false;
  opened_.spend(node, now);
  return true;
}

std::optional<Response> Streams::obstacle(const Target& target) const {
  if (target.address.empty())
    return stream_refusal(503, "ServiceUnavailable",
                          "the address of the stream's target is not known yet");
  if (target.identity && !options_.sign)
    return stream_refusal(503, "ServiceUnavailable",
                          "this gateway cannot sign identities of workers");
  const net::Ip ip = net::parse_ip(target.address.substr(0, target.address.rfind(':')));
  // Other forms that the system reads, such as localhost, would pass by the list of targets.
  if (ip.bits == 0)
    return stream_refusal(503, "ServiceUnavailable",
                          "the address of the stream's target is not a numeric HOST:PORT");
  const std::string refusal = options_.targets ? options_.targets->refusal(ip) : std::string();
  if (refusal.empty()) return std::nullopt;
  return stream_refusal(403, "Forbidden",
                        refusal +
                            ", which this gateway refuses as a target of streams; "
                            "--allow-stream-target allows it");
}

void Streams::serve(const std::string& node, const EdgeNodeOf& edge_node, Request request,
                    net::Responder respond) {
  const auto names = names_of(request);
  if (!names.ok()) return respond(stream_refusal(400, "BadRequest", names.error().message()));
  if (!net::wants_upgrade(request, net::kStreamProtocol))
    return respond(stream_refusal(
        426, "UpgradeRequired",
        "expected GET with Connection: Upgrade and Upgrade: " + std::string(net::kStreamProtocol)));
  if (!may_open(node))
    return respond(
        stream_refusal(429, "TooManyRequests", "node \"" + node + "\" opens streams too often"));
  const std::string &worker = names->first, &name = names->second;
  const auto look = [&] {
    const auto present = edge_node();
    return present ? find_target(*present, worker, name) : std::nullopt;
  };
  const auto forbidden = [&] {
    return stream_refusal(403, "Forbidden",
                          "the work list of node \"" + node + "\" has no worker \"" +
                              worker.substr(0, 317) + "\" with a stream \"" + name.substr(0, 63) +
                              "\"");
  };
  auto stream = std::make_shared<Stream>();
  auto target = look();
  if (!target) return respond(forbidden());
  stream->node = node;
  stream->client = request.peer.address;
  stream->target = std::move(*target);
  stream->slot = slots_.reserve(node, stream->target.grant());
  if (!stream->slot)
    return respond(stream_refusal(429, "TooManyRequests", "too many streams are open"));
  // A change before the reservation revoked nothing, so look again.
  target = look();
  if (!target || target->grant() != stream->target.grant()) return respond(forbidden());
  if (auto refused = obstacle(stream->target)) return respond(std::move(*refused));
  const WallTime not_after = request.peer.certificate_not_after;
  if (not_after != WallTime())
    stream->until = clock_.now() + std::chrono::duration_cast<Duration>(not_after - clock_.wall());
  const auto held = std::make_shared<net::Responder>(std::move(respond));
  splicer_.dial(stream->target.address, options_.connect_timeout,
                [this, stream, held](Result<std::unique_ptr<net::Tunnel>> connection) {
                  dialed(stream, *held, std::move(connection));
                });
}

Result<std::string> Streams::header_of(const Stream& stream) const {
  net::ProxyHeader header{.source = stream.client, .destination = stream.target.address};
  net::add_identity(
      header, {.node = stream.node, .worker = stream.target.worker, .job_uid = stream.target.uid});
  TRY_VOID(options_.sign(header));
  return net::write_proxy_header(header);
}

void Streams::dialed(const std::shared_ptr<Stream>& stream, net::Responder& respond,
                     Result<std::unique_ptr<net::Tunnel>> target) {
  if (!target.ok()) {
    log::info("target of a stream not reachable", {{"node", stream->node},
                                                   {"worker", stream->target.worker},
                                                   {"stream", stream->target.stream},
                                                   {"error", target.error()}});
    return respond(
        stream_refusal(503, "ServiceUnavailable",
                       "the target of the stream is not reachable: " + target.error().message()));
  }
  if (stream->slot->revoked())
    return respond(stream_refusal(403, "Forbidden", "the work list has no such stream any more"));
  if (stream->target.identity) {
    auto header = header_of(*stream);
    if (!header.ok()) {
      log::error("identity of a stream not signed", {{"error", header.error()}});
      return respond(stream_refusal(503, "ServiceUnavailable",
                                    "this gateway cannot sign identities of workers"));
    }
    stream->preamble = std::move(*header);
  }
  stream->connection = std::move(*target);
  respond(net::upgrade_response(
      net::kStreamProtocol,
      [this, stream](std::unique_ptr<net::Tunnel> client) { start(stream, std::move(client)); }));
}

void Streams::start(const std::shared_ptr<Stream>& stream, std::unique_ptr<net::Tunnel> client) {
  stream->begin = clock_.now();
  log::info("stream opened", {{"node", stream->node},
                              {"worker", stream->target.worker},
                              {"stream", stream->target.stream},
                              {"target", stream->target.address}});
  const std::uint64_t pair = splicer_.splice(
      {.first = std::move(client),
       .second = std::move(stream->connection),
       .preamble = std::move(stream->preamble),
       .until = stream->until,
       .on_end = [this, stream](const net::Splicer::Report& report) { ended(*stream, report); }});
  stream->slot->attach(pair);
}

void Streams::ended(const Stream& stream, const net::Splicer::Report& report) {
  if (up_bytes_ != nullptr) up_bytes_->add(static_cast<double>(report.forward_bytes));
  if (down_bytes_ != nullptr) down_bytes_->add(static_cast<double>(report.backward_bytes));
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(clock_.now() - stream.begin).count();
  log::info("stream ended", {{"node", stream.node},
                             {"worker", stream.target.worker},
                             {"stream", stream.target.stream},
                             {"end", stream.slot->revoked() ? "revoked" : to_string(report.end)},
                             {"error", report.error},
                             {"bytes_up", report.forward_bytes},
                             {"bytes_down", report.backward_bytes},
                             {"seconds", seconds}});
}

void Streams::changed(const std::string& node, const EdgeNodeOf& edge_node) {
  if (!slots_.has(node)) return;
  const auto present = edge_node();
  slots_.keep_only(node, present ? grants_of(*present) : std::set<std::string>());
}

}  // namespace varda::gateway
