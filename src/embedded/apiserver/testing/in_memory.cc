#include "apiserver/testing/in_memory.h"

#include <algorithm>
#include <list>

#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "codec/yaml.h"

namespace varda::apiserver {

namespace {

constexpr std::string_view kCrdPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
constexpr std::string_view kCrdKeys = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/// The stored entries of the CRDs, oldest first.
std::vector<store::Entry> installed(const std::vector<codec::Json>& crds) {
  InMemoryApiServer api;
  for (const codec::Json& crd : crds) {
    const auto reply = api.post(std::string(kCrdPath), crd);
    if (reply.status != 201) log::error("CRD refused", {{"answer", reply.text}});
    CHECK(reply.status == 201);
  }
  api.settle();
  std::vector<store::Entry> entries =
      api.store().list({.prefix = std::string(kCrdKeys)}).value().entries;
  std::sort(entries.begin(), entries.end(),
            [](const store::Entry& a, const store::Entry& b) { return a.created < b.created; });
  return entries;
}

/// installed(), cached per process for each set of CRDs. A process has few sets.
const std::vector<store::Entry>& installed_once(const std::vector<codec::Json>& crds) {
  struct Known {
    std::vector<codec::Json> crds;
    std::vector<store::Entry> entries;
  };
  static Mutex mutex;
  static std::list<Known> all;  // elements never change
  const MutexLock lock(mutex);
  for (const Known& known : all)
    if (known.crds == crds) return known.entries;
  return all.emplace_back(Known{crds, installed(crds)}).entries;
}

}  // namespace

InMemoryApiServer::InMemoryApiServer() : InMemoryApiServer(Options()) {}

InMemoryApiServer::InMemoryApiServer(Options options) : store_(store::open_memory(options.store)) {
  if (!options.crds.empty()) {
    for (const store::Entry& entry : installed_once(options.crds))
      CHECK(store_->put(entry.key, *entry.value).ok());
  }
  options.server.store = store_.get();
  server_ = Server::create(std::move(options.server)).value();
  client_ = transport_as({.name = "test", .groups = {"system:masters"}});
}

InMemoryApiServer::~InMemoryApiServer() {
  server_->stop();
  client_.reset();
}

std::unique_ptr<net::HttpClient> InMemoryApiServer::transport_as(Identity identity) {
  return net::loopback(server_->handler_as(std::move(identity)));
}

InMemoryApiServer::Reply InMemoryApiServer::call(std::string method, std::string target,
                                                 const codec::Json& body,
                                                 std::string content_type) {
  net::ClientRequest request;
  request.method = std::move(method);
  request.url = std::move(target);
  request.headers.add("Accept", "application/json");
  if (!body.is_null()) {
    request.headers.add("Content-Type", std::move(content_type));
    request.body = codec::write_json(body);
  }
  auto answer = client_->call(Context::background().with_timeout(std::chrono::seconds(120)),
                              std::move(request));
  Reply reply{
      .status = answer.value().status, .body = nullptr, .text = std::move(answer.value().body)};
  if (auto parsed = codec::parse_json(reply.text); parsed.ok())
    reply.body = std::move(parsed).value();
  return reply;
}

void InMemoryApiServer::install_crds(std::string_view yaml_stream) {
  const std::string path(kCrdPath);
  auto crds = codec::parse_yaml_stream(yaml_stream);
  for (codec::Json& crd : crds.value()) {
    Reply reply = post(path, crd);
    if (reply.status == 409) {
      const std::string target = path + "/" + crd.at("metadata/name").as_string();
      crd["metadata"].set("resourceVersion", get(target).body.at("metadata/resourceVersion"));
      reply = put(target, crd);
    }
    if (reply.status >= 300) log::error("CRD refused", {{"answer", reply.text}});
    CHECK(reply.status < 300);
  }
}

void InMemoryApiServer::settle() {
  CHECK(server_->settle(Context::background().with_timeout(std::chrono::seconds(60))));
}

}  // namespace varda::apiserver
