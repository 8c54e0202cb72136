// Detects that a manager under test has no work left, by observation instead of sleeps.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "kube/client.h"
#include "runtime/manager.h"

namespace varda::runtime::testing {

/// Every copy holds exactly the server's objects and versions. The last change may still be on its
/// way to handlers. For managers with unfiltered informers.
inline bool copies_agree(const Manager& manager, const kube::Client& client) {
  for (const auto& informer : manager.caches().all()) {
    const auto list =
        client.list_all(Context().with_timeout(std::chrono::minutes(1)), informer->resource());
    if (!list.ok() && !informer->served() && informer->size() == 0) continue;
    if (!list.ok() || list->items.size() != informer->size()) return false;
    for (const Json& item : list->items) {
      const StoredPtr have = informer->get(
          {item["metadata"]["namespace"].as_string(), item["metadata"]["name"].as_string()});
      if (!have ||
          have->metadata.resource_version != item["metadata"]["resourceVersion"].as_string())
        return false;
    }
  }
  return true;
}

/// Waits until the manager is ready and its copies are complete. Then neither work nor a change of
/// `revision` (the server's) may appear in forty checks. False: one minute was not enough.
inline bool becomes_idle(const Manager& manager, const kube::Client& client,
                         const std::function<std::string()>& revision) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  std::string before;
  for (int quiet = -1; quiet < 40; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    if (std::chrono::steady_clock::now() > limit) return false;
    const std::string now = revision();
    if (now != before || !manager.ready() || !manager.idle()) {
      quiet = -1;
    } else if (quiet >= 0 || copies_agree(manager, client)) {
      ++quiet;
    }
    before = now;
  }
  return true;
}

}  // namespace varda::runtime::testing
