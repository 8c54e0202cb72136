#include "agent/core/link.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "api/edgeai/edge_summary.h"
#include "api/edgeai/write_pause.h"
#include "base/log.h"
#include "meta/patch.h"

namespace varda::agent::core {
namespace {

runtime::Informer::Options informer_options(const Link::Options& options) {
  auto informer = runtime::Informer::typed<api::EdgeNode>(
      {.field_selector = "metadata.name=" + options.node_name});
  informer.watch_timeout = options.watch_timeout;
  informer.backoff_min = options.backoff_first;
  informer.backoff_max = options.backoff_max;
  informer.clock = options.clock;
  informer.rng = options.rng;
  informer.metrics = options.metrics;
  return informer;
}

const std::vector<std::string>& own_members() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const api::Property& member :
         api::EdgeNode::kind().schema->find("status")->schema.properties)
      if (member.name != "conditions" && member.name != "lastSeen") out.push_back(member.name);
    return out;
  }();
  return names;
}

std::size_t items_of(const api::EdgeNodeStatus& status) {
  return status.models.size() + status.datasets.size() + status.workers.size() +
         status.shares.size() + status.replicas.size() + status.files.size() +
         status.samples.size();
}

}  // namespace

std::optional<codec::Json> status_patch(const api::EdgeNodeStatus& wanted,
                                        const codec::Json& live) {
  const codec::Json now = live["status"].is_object() ? live["status"] : codec::Json::object();
  codec::Json next = now;
  const codec::Json reported = wanted.to_json();
  for (const std::string& name : own_members()) {
    if (const codec::Json* value = reported.find(name)) {
      next.set(name, *value);
    } else {
      next.erase(name);
    }
  }
  if (next == now) return std::nullopt;
  return codec::Json::object({{"status", meta::make_merge_patch(now, next)}});
}

Link::Link(const kube::Client& client, Options options,
           std::function<void(const api::EdgeNode&)> received,
           std::function<Report(const api::EdgeNodeStatus&)> report)
    : client_(client),
      options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : system_clock()),
      report_(std::move(report)),
      informer_(client, informer_options(options_)),
      backoff_(options_.backoff_first) {
  informer_.on_change([this, received = std::move(received)](const runtime::Change& change) {
    if (change.now && change.now->typed) {
      received(*static_cast<const api::EdgeNode*>(change.now->typed.get()));
    } else if (change.now) {
      log::error("EdgeNode cannot be decoded, keeping the previous version",
                 {{"error", change.now->problem}});
    }
    wake();
  });
  // If the object is missing, only this marks the end of the first list.
  informer_.on_progress(
      [this](const std::string&, runtime::Informer::Progress) { wakeup_.notify(); });
}

void Link::wake() {
  const MutexLock lock(mutex_);
  dirty_ = true;
  wakeup_.notify();
}

void Link::report_changed() {
  const MutexLock lock(mutex_);
  reporting_ = dirty_ = true;
  wakeup_.notify();
}

Result<std::size_t> Link::sync(const Context& ctx) {
  const meta::ObjectKey key{"", options_.node_name};
  codec::Json live;
  if (const auto stored = informer_.get(key)) {
    live = stored->json();
  } else if (options_.synced) {
    TRY(auto found, client_.find(ctx, api::EdgeNode::resource(), key));
    if (!found) {
      options_.synced(nullptr, {});
      return 0;
    }
    live = std::move(*found);  // the watch is behind
  } else {
    codec::Json object =
        codec::Json::object({{"apiVersion", api::EdgeNode::resource().api_version()},
                             {"kind", api::EdgeNode::resource().kind},
                             {"metadata", codec::Json::object({{"name", options_.node_name}})},
                             {"spec", codec::Json::object()}});
    auto created = client_.create(ctx, api::EdgeNode::resource(), object);
    if (!created.ok() && created.error().code() == Code::kAlreadyExists)
      created = client_.get(ctx, api::EdgeNode::resource(), key);  // the watch is behind
    TRY(live, std::move(created));
  }
  const auto object = api::EdgeNode::from_json(live);
  Report report = report_(object.ok() ? object->status : api::EdgeNodeStatus());
  const codec::Json uid = std::as_const(live).at("metadata/uid");
  // If the report answers the list of a deleted object, nothing of the new one was observed yet.
  const bool other = !report.observed.uid.empty() && report.observed.uid != uid.as_string();
  const std::int64_t newest = std::as_const(live).at("metadata/generation").as_integer();
  report.status.observed_generation =
      other || report.observed.generation > newest ? 0 : report.observed.generation;
  if (object.ok()) report.status.summary = api::summarize(object->spec, report.status);
  auto patch = status_patch(report.status, live);
  const auto notify = [&] {
    if (options_.synced && object.ok()) options_.synced(&*object, report.status);
  };
  if (!patch) {
    notify();
    return 0;
  }
  patch->set("metadata", codec::Json::object({{"uid", uid}}));  // conflict if recreated
  TRY(const auto written, client_.patch(ctx, api::EdgeNode::resource(), key,
                                        kube::PatchType::kMerge, *patch, "status"));
  informer_.wrote(written);
  notify();
  return items_of(report.status);
}

std::vector<runtime::Task> Link::tasks() {
  std::vector<runtime::Task> out;
  out.push_back(runtime::informer_task(informer_, clock_));
  out.push_back({.name = "report",
                 .due = [this] { return due(); },
                 .step = [this](const Context& ctx) { step(ctx); },
                 .wakeup = &wakeup_});
  return out;
}

std::optional<SteadyTime> Link::due() const {
  if (!informer_.has_synced()) return std::nullopt;
  const MutexLock lock(mutex_);
  if (retry_) return retry_;
  return dirty_ ? std::optional(next_write_) : recheck_at_;
}

void Link::step(const Context& ctx) {
  {
    const MutexLock lock(mutex_);
    dirty_ = false;
    retry_.reset();
    recheck_at_.reset();
    if (!reporting_) return;
  }
  if (ctx.done()) return;
  const SteadyTime begin = clock_.now();
  const Result<std::size_t> written = sync(ctx);
  const SteadyTime now = clock_.now();
  if (written.ok()) {
    backoff_ = options_.backoff_first;
    const bool known = informer_.get({"", options_.node_name}) != nullptr;
    const MutexLock lock(mutex_);
    if (*written > 0) next_write_ = now + api::write_pause(*written, now - begin);
    if (!known) recheck_at_ = now + options_.backoff_max;
  } else if (!ctx.done()) {
    if (backoff_ == options_.backoff_first)
      log::warn("cannot write the EdgeNode's status, retrying", {{"error", written.error()}});
    const MutexLock lock(mutex_);
    retry_ = now + backoff_;
    backoff_ = std::min(backoff_ * 2, options_.backoff_max);
  }
}

}  // namespace varda::agent::core
