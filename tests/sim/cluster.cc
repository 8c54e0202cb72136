#include "cluster.h"

#include "api/kind.h"
#include "base/check.h"
#include "base/log.h"

namespace varda::sim {

Cluster::Cluster() : store_(store::open_memory({.history_events_max = 20'000})) {
  rng_.seed(1);
  sessions_.now = std::make_unique<cluster::NodeSessions>(clock_);
  open_server();
  for (const codec::Json& crd : api::crds())
    CHECK(call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).status ==
          201);
  settle();
  for (const store::Entry& entry : store_->list({.prefix = "/"}).value().entries)
    clean_[entry.key] = *entry.value;
}

Cluster::~Cluster() { server_->stop(); }

void Cluster::open_server() {
  apiserver::Server::Options options;
  options.store = store_.get();
  options.sessions = &sessions_;
  for (const api::NativeRule& rule : api::native_rules())
    options.rules[{rule.group, rule.kind}] = rule.check;
  options.clock = &clock_;
  options.rng = &rng_;
  options.controllers = false;
  server_ = apiserver::Server::create(std::move(options)).value();
  user_ = server_->handler_as({"user", {"system:masters"}});
}

void Cluster::settle() {
  // The server's controllers are idle once nothing is due now.
  for (int i = 0; i < 10'000; ++i)
    if (const auto next = server_->step_controllers(); next && *next > clock_.now()) return;
  CHECK(false);
}

void Cluster::begin(std::uint64_t seed) {
  rng_.seed(seed);
  std::vector<store::Op> ops;
  std::map<std::string, std::string> missing = clean_;
  for (const store::Entry& entry : store_->list({.prefix = "/"}).value().entries) {
    const auto clean = clean_.find(entry.key);
    if (clean == clean_.end()) {
      ops.emplace_back(store::Delete{.key = entry.key, .expected = std::nullopt});
      continue;
    }
    if (clean->second != *entry.value)
      ops.emplace_back(store::Put{entry.key, clean->second, std::nullopt});
    missing.erase(entry.key);
  }
  for (auto& [key, value] : missing) ops.emplace_back(store::Put{key, value, std::nullopt});
  if (!ops.empty()) CHECK(store_->commit(std::move(ops)).ok());
  settle();
  CHECK(store_->compact(store_->revision()).ok());
  constexpr auto kDay = std::chrono::hours(24);
  clock_.move_to(SteadyTime(clock_.now().time_since_epoch() / kDay * kDay + kDay));
  sessions_.now = std::make_unique<cluster::NodeSessions>(clock_);
}

void Cluster::restart_server(Network& network) {
  network.serve(nullptr);
  server_->stop();
  server_.reset();
  open_server();
  network.serve(server_.get());
}

Cluster::Reply Cluster::call(const std::string& method, const std::string& target,
                             const codec::Json& body, const std::string& type) {
  net::Request request{.method = method,
                       .target = target,
                       .headers = {{"Accept", "application/json"}},
                       .body = {},
                       .peer = {}};
  if (!body.is_null()) {
    request.headers.add("Content-Type", type);
    request.body = codec::write_json(body);
  }
  Reply out;
  user_(std::move(request), net::Responder([&out](net::Response response) {
          out.status = response.status;
          if (auto parsed = codec::parse_json(response.body); parsed.ok())
            out.body = std::move(*parsed);
        }));
  return out;
}

}  // namespace varda::sim
