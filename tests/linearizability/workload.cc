#include "workload.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "codec/json.h"
#include "kube/client.h"

namespace varda::linearizability {
namespace {

using codec::Json;
using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

const std::string kEnd = "default/the-end";
const std::vector<std::string> kKeys = {"default/a", "default/b", "default/c", "kube-public/a",
                                        "kube-public/b"};
const meta::Resource kConfigMaps{
    .group = "", .version = "v1", .kind = "ConfigMap", .plural = "configmaps", .namespaced = true};

Revision number(const Json& text) {
  return text.as_string().empty() ? 0 : std::stoll(text.as_string());
}

Object object_of(const Json& json) {
  Object out{
      .key = json.at("metadata/namespace").as_string() + "/" + json.at("metadata/name").as_string(),
      .uid = json.at("metadata/uid").as_string(),
      .revision = number(json.at("metadata/resourceVersion")),
      .fields = {}};
  for (const auto& [name, value] : json["data"].as_object()) out.fields[name] = value.as_string();
  if (const Json& phase = json.at("metadata/labels/phase"); phase.is_string())
    out.fields["phase"] = phase.as_string();
  return out;
}

Json body_of(const std::string& name, const Fields& fields) {
  Json out = Json::object({{"metadata", Json::object({{"name", name}})}, {"data", Json::object()}});
  for (const auto& [field, value] : fields) {
    if (field == "phase") {
      out.make("metadata/labels").set("phase", value);
    } else {
      out["data"].set(field, value);
    }
  }
  return out;
}

std::string namespace_of(const std::string& key) { return key.substr(0, key.find('/')); }
std::string name_of(const std::string& key) { return key.substr(key.find('/') + 1); }
std::string collection(const std::string& ns) {
  return ns.empty() ? "/api/v1/configmaps" : "/api/v1/namespaces/" + ns + "/configmaps";
}
std::string path_of(const std::string& key) {
  return collection(namespace_of(key)) + "/" + name_of(key);
}
bool is_own(const std::string& key) {
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

struct Answer {
  int status = 0;
  Json body;
};

/// State that all threads share.
struct World {
  net::HttpClient& http;
  std::atomic<Tick> ticks{1};

  Answer call(std::string method, std::string target, const Json& body = nullptr,
              std::string type = "application/json") {
    net::ClientRequest request{
        .method = std::move(method), .url = std::move(target), .headers = {}, .body = ""};
    if (!body.is_null()) {
      request.headers.add("Content-Type", std::move(type));
      request.body = codec::write_json(body);
    }
    const auto answer = http.call(Context(), std::move(request));
    CHECK(answer.ok());
    return {.status = answer->status, .body = codec::parse_json(answer->body).value()};
  }
};

class Client {
 public:
  Client(World& world, const Load& load, int index)
      : world_(world),
        index_(index),
        rng_(seeded_rng(load.seed * 1000 + static_cast<std::uint64_t>(index))) {}

  std::vector<Operation> run(int count) {
    for (int i = 0; i < count; ++i) step();
    return std::move(done_);
  }

 private:
  std::string unique() { return std::to_string(index_) + "." + std::to_string(++writes_); }

  void step() {
    Operation op;
    op.client = index_;
    op.key = kKeys[rng_->below(kKeys.size())];
    const Object* known = nullptr;  // as last seen by this client
    if (const auto found = known_.find(op.key); found != known_.end()) known = &found->second;
    const std::uint64_t draw = rng_->below(100);
    if (draw < 22) {
      create(op);
    } else if (draw < 40) {
      replace(op, known);
    } else if (draw < 58) {
      patch(op);
    } else if (draw < 72) {
      remove(op, known);
    } else if (draw < 90) {
      get(op);
    } else {
      list(op);
    }
    done_.push_back(std::move(op));
  }

  /// Sends the request, and records time and outcome.
  Answer call(Operation& op, std::string method, std::string target, const Json& body = nullptr,
              std::string type = "application/json") {
    op.invoked = world_.ticks.fetch_add(1);
    Answer answer = world_.call(std::move(method), std::move(target), body, std::move(type));
    op.returned = world_.ticks.fetch_add(1);
    const std::string& reason = answer.body["reason"].as_string();
    if (answer.status == 404) {
      op.outcome = Outcome::kNotFound;
    } else if (answer.status == 409) {
      op.outcome = reason == "AlreadyExists" ? Outcome::kExists : Outcome::kConflict;
    } else if (answer.status >= 300) {
      log::error("unexpected answer to an operation",
                 {{"status", answer.status}, {"body", codec::write_json(answer.body)}});
      CHECK(answer.status < 300);
    }
    return answer;
  }

  /// The same for requests with an object as answer.
  void call_for_object(Operation& op, std::string method, std::string target,
                       const Json& body = nullptr, std::string type = "application/json") {
    const Answer answer = call(op, std::move(method), std::move(target), body, std::move(type));
    if (op.outcome != Outcome::kOk) return;
    op.object = object_of(answer.body);
    known_[op.key] = op.object;
  }

  void create(Operation& op) {
    op.kind = Kind::kCreate;
    op.wanted = {{"w", unique()}, {"phase", rng_->below(2) == 0 ? "x" : "y"}};
    call_for_object(op, "POST", collection(namespace_of(op.key)),
                    body_of(name_of(op.key), op.wanted));
  }
  void replace(Operation& op, const Object* known) {
    op.kind = Kind::kReplace;
    op.wanted = known ? known->fields : Fields();
    op.wanted["w"] = unique();
    op.wanted["phase"] = rng_->below(2) == 0 ? "x" : "y";
    if (known && rng_->below(4) != 0) op.revision_lock = known->revision;
    Json body = body_of(name_of(op.key), op.wanted);
    if (op.revision_lock != 0)
      body["metadata"].set("resourceVersion", std::to_string(op.revision_lock));
    call_for_object(op, "PUT", path_of(op.key), body);
  }
  void patch(Operation& op) {
    op.kind = Kind::kPatch;
    const std::string field = "p" + std::to_string(index_);
    op.wanted = {{field, unique()}};
    if (rng_->below(3) == 0) op.wanted["phase"] = rng_->below(2) == 0 ? "x" : "y";
    Json body = body_of("", op.wanted);
    body["metadata"].erase("name");
    static const std::vector<std::string> kTypes = {"application/merge-patch+json",
                                                    "application/strategic-merge-patch+json"};
    call_for_object(op, "PATCH", path_of(op.key), body, kTypes[rng_->below(2)]);
  }
  void remove(Operation& op, const Object* known) {
    op.kind = Kind::kDelete;
    Json options = Json::object();
    if (known) {
      const std::uint64_t lock = rng_->below(4);
      if (lock == 1 || lock == 3) op.revision_lock = known->revision;
      if (lock == 2 || lock == 3) op.uid_lock = known->uid;
    }
    if (op.revision_lock != 0)
      options.make("preconditions").set("resourceVersion", std::to_string(op.revision_lock));
    if (!op.uid_lock.empty()) options.make("preconditions").set("uid", op.uid_lock);
    const Answer answer = call(op, "DELETE", path_of(op.key), options);
    if (op.outcome != Outcome::kOk) return;
    op.object.key = op.key;
    op.object.uid = answer.body.at("details/uid").as_string();
    CHECK(!op.object.uid.empty());
  }
  void get(Operation& op) {
    op.kind = Kind::kGet;
    call_for_object(op, "GET", path_of(op.key));
  }
  void list(Operation& op) {
    op.kind = Kind::kList;
    op.key = rng_->below(2) == 0 ? "" : namespace_of(op.key);
    const bool paged = rng_->below(2) == 0;
    std::string token;
    Tick begin = 0;
    do {
      const Answer page =
          call(op, "GET",
               collection(op.key) +
                   (paged ? "?limit=2" + (token.empty() ? "" : "&continue=" + token) : ""));
      CHECK(page.status == 200);
      if (begin == 0) begin = op.invoked;
      for (const Json& item : page.body["items"].as_array()) {
        if (Object object = object_of(item); is_own(object.key))
          op.items.push_back(std::move(object));
      }
      const Revision revision = number(page.body.at("metadata/resourceVersion"));
      // The pages of one list show one snapshot.
      CHECK(token.empty() || revision == op.revision);
      op.revision = revision;
      token = page.body.at("metadata/continue").as_string();
    } while (!token.empty());
    op.invoked = begin;
  }

  World& world_;
  const int index_;
  const std::unique_ptr<Rng> rng_;
  int writes_ = 0;
  std::map<std::string, Object> known_;
  std::vector<Operation> done_;
};

Event::Type type_of(kube::WatchEvent::Type type) {
  switch (type) {
    case kube::WatchEvent::Type::kAdded:
      return Event::Type::kAdded;
    case kube::WatchEvent::Type::kModified:
      return Event::Type::kModified;
    case kube::WatchEvent::Type::kDeleted:
      return Event::Type::kDeleted;
    case kube::WatchEvent::Type::kBookmark:
      break;
  }
  return Event::Type::kBookmark;
}

/// Reads at most `count` events. True: they include the end marker.
bool follow(World& world, const kube::Client& client, Watch& out, std::size_t count) {
  const std::string selector = out.phase.empty() ? "" : "phase in (" + out.phase + ",end)";
  auto watch = client.watch(Context(), kConfigMaps,
                            {.ns = out.ns,
                             .label_selector = selector,
                             .field_selector = "",
                             .resource_version = std::to_string(out.after)});
  CHECK(watch.ok());
  while (out.events.size() < count) {
    auto event = (*watch)->next();
    CHECK(event.ok() && event->has_value());  // no side ends the watch, and history is complete
    Event seen{.type = type_of((*event)->type),
               .object = object_of((*event)->object),
               .received = world.ticks.fetch_add(1)};
    if (seen.object.key == kEnd) return true;
    if (seen.type == Event::Type::kBookmark)
      seen.object = {
          .key = "", .uid = "", .revision = number((*event)->resource_version), .fields = {}};
    if (seen.type == Event::Type::kBookmark || is_own(seen.object.key))
      out.events.push_back(std::move(seen));
  }
  return false;
}

Revision revision_now(World& world) {
  return number(world.call("GET", collection("")).body.at("metadata/resourceVersion"));
}

}  // namespace

History run(net::HttpClient& http, const Load& load) {
  World world{.http = http};
  const kube::Client client(http, {});
  History out;
  out.begin = revision_now(world);

  std::vector<std::vector<Operation>> done(static_cast<std::size_t>(load.clients));
  std::vector<std::vector<Watch>> watched(static_cast<std::size_t>(load.watchers));
  Watch log{.ns = "", .phase = "", .after = out.begin, .events = {}};
  {
    std::vector<std::jthread> watchers, clients;
    watchers.emplace_back([&] { CHECK(follow(world, client, log, SIZE_MAX)); });
    for (int i = 0; i < load.watchers; ++i) {
      watchers.emplace_back([&, i] {
        const auto rng = seeded_rng(load.seed * 1000 + 500 + static_cast<std::uint64_t>(i));
        // From the beginning, from now, or from the end of the last watch, for a random number of
        // events.
        Revision last = out.begin;
        for (bool ended = false; !ended;) {
          Watch watch{.ns = i == 1 ? "default" : "",
                      .phase = i == 2 ? "x" : "",
                      .after = last,
                      .events = {}};
          if (rng->below(4) == 0)
            watch.after = rng->below(2) == 0 ? out.begin : revision_now(world);
          ended = follow(world, client, watch, 1 + rng->below(40));
          if (!watch.events.empty()) last = watch.events.back().object.revision;
          watched[static_cast<std::size_t>(i)].push_back(std::move(watch));
        }
      });
    }
    for (int i = 0; i < load.clients; ++i)
      clients.emplace_back([&, i] {
        done[static_cast<std::size_t>(i)] = Client(world, load, i).run(load.operations);
      });
    clients.clear();
    // Every watch selects this object. It is written repeatedly, for watches that start after the
    // first write.
    std::jthread end([&](const std::stop_token& stop) {
      world.call("POST", collection("default"), body_of(name_of(kEnd), {{"phase", "end"}}));
      for (int i = 0; !stop.stop_requested(); ++i)
        world.call("PUT", path_of(kEnd),
                   body_of(name_of(kEnd), {{"i", std::to_string(i)}, {"phase", "end"}}));
    });
    watchers.clear();
  }
  for (auto& operations : done)
    out.operations.insert(out.operations.end(), operations.begin(), operations.end());
  for (auto& watches : watched)
    out.watches.insert(out.watches.end(), watches.begin(), watches.end());
  out.log = std::move(log.events);
  return out;
}

}  // namespace varda::linearizability
