#include "agent/core/core.h"

#include <algorithm>
#include <utility>

namespace varda::agent::core {

Core::Core(const kube::Client& client, Options options, StateStore& state_store,
           std::vector<NodeComponent*> components)
    : address_(std::move(options.address)),
      components_(std::move(components)),
      work_list_(state_store),
      unpublished_(components_.begin(), components_.end()),
      link_(
          client, std::move(options.link), [this](const api::EdgeNode& node) { received(node); },
          [this](const api::EdgeNodeStatus& live) { return report(live); }) {
  for (NodeComponent* component : components_)
    component->on_publish([this, component] { published(*component); });
}

void Core::load() {
  const auto list = work_list_.load();
  for (NodeComponent* component : components_) {
    if (list) component->apply(*list);
    component->load();
  }
}

std::vector<runtime::Task> Core::tasks() {
  std::vector<runtime::Task> out = link_.tasks();
  out.push_back({.name = "work list",
                 .due = [this] { return due(); },
                 .step = [this](const Context&) { apply(); },
                 .wakeup = &wakeup_});
  for (NodeComponent* component : components_)
    for (runtime::Task& task : component->tasks()) out.push_back(std::move(task));
  return out;
}

void Core::finish() {
  for (NodeComponent* component : components_) component->finish();
}

// ---- the work list

void Core::received(const api::EdgeNode& node) {
  const MutexLock lock(mutex_);
  received_ = node;
  wakeup_.notify();
}

std::optional<SteadyTime> Core::due() const {
  const MutexLock lock(mutex_);
  return received_ ? std::optional(SteadyTime::min()) : std::nullopt;
}

void Core::apply() {
  std::optional<api::EdgeNode> node;
  {
    const MutexLock lock(mutex_);
    node.swap(received_);
  }
  if (!node) return;
  for (NodeComponent* component : components_) component->adopt(node->status);
  if (const auto list = work_list_.accept(*node))
    for (NodeComponent* component : components_) component->apply(*list);
}

// ---- the report

void Core::published(const NodeComponent& component) {
  {
    // Until every component has reported, the server keeps the previous status.
    const MutexLock lock(mutex_);
    unpublished_.erase(&component);
    if (!unpublished_.empty()) return;
  }
  link_.report_changed();
}

Link::Report Core::report(const api::EdgeNodeStatus& live) const {
  Link::Report out;
  out.status.agent_version = VARDA_VERSION;
  out.status.address = address_;
  std::optional<ListId> lowest;
  for (const NodeComponent* component : components_) {
    const ListId answered = component->put_report(out.status, live);
    if (!lowest) lowest = answered;
    // Generations of different objects cannot be compared.
    lowest->generation =
        lowest->uid == answered.uid ? std::min(lowest->generation, answered.generation) : 0;
  }
  if (lowest) out.observed = *lowest;
  return out;
}

}  // namespace varda::agent::core
