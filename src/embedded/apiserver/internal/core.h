// State shared by the parts of one server.
#pragma once

#include <atomic>
#include <memory>
#include <shared_mutex>

#include "apiserver/internal/recent_trees.h"
#include "apiserver/internal/registry.h"
#include "apiserver/internal/services_held.h"
#include "apiserver/internal/sessions.h"
#include "apiserver/server.h"
#include "net/timers.h"

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
  net::Timers timers;  // of streams
  std::atomic<bool> stopping{false};
  /// Creations hold a shared lock from the namespace check to the commit. The removal of a
  /// namespace holds an exclusive lock. No object is ever created in a removed namespace.
  std::shared_mutex namespaces;
  /// One allocation of service addresses and ports at a time.
  Mutex services;
  ServicesHeld services_held;  // used by the holder of `services`
  RecentTrees recent_trees;
};

}  // namespace varda::apiserver
