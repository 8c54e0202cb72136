// What the parts of one server share.
#pragma once

#include <atomic>
#include <memory>
#include <shared_mutex>

#include "apiserver/internal/recent_trees.h"
#include "apiserver/internal/registry.h"
#include "apiserver/internal/services_held.h"
#include "apiserver/internal/sessions.h"
#include "apiserver/internal/timers.h"
#include "apiserver/server.h"

namespace varda::apiserver {

struct Core {
  explicit Core(Server::Options o)
      : options(std::move(o)),
        clock(options.clock != nullptr ? *options.clock : system_clock()),
        rng(options.rng != nullptr ? *options.rng : system_rng()),
        store(*options.store),
        registry(store, options.rules),
        sessions(options.sessions, options.limits.watches_max) {}

  const Server::Options options;
  const Clock& clock;
  Rng& rng;
  store::Store& store;
  Registry registry;
  Sessions sessions;
  Timers timers;
  std::atomic<bool> stopping{false};
  /// Creations hold it shared from the look at their namespace to their commit; the end of a namespace holds it alone, so that
  /// nothing is ever created in a namespace that is gone.
  std::shared_mutex namespaces;
  /// One allocation of addresses and ports of services at a time.
  Mutex services;
  ServicesHeld services_held;  // of whoever holds `services`
  RecentTrees recent_trees;
};

}  // namespace varda::apiserver
