// Controllers: a reconciler declares what it watches and how it fixes one object; the runtime does
// the rest.
//
//   class ModelReconciler {
//    public:
//     void watches(runtime::Watches<Model>& w) const {
//       w.owns<Pod>(runtime::Update::kRecreate).owns<Service>();
//       w.maps<Node>(models_wanting_node);        // both orders of arrival converge
//     }
//     Result<runtime::Action> reconcile(const Context& ctx, const Model& model,
//                                       runtime::Writer& writer);
//     // Optional: the object is gone. Called at least once after the deletion, and for keys from
//     // map functions that have no object.
//     Result<runtime::Action> on_deleted(const Context& ctx, const meta::ObjectKey& key,
//                                        runtime::Writer& writer);
//   };
//
// reconcile() is level-triggered and idempotent. It runs only after all caches are complete, and
// never twice at once for one object. An error becomes an Event and a retry with back-off
// (kConflict: only a retry). A terminal error waits for the next change. Exceptions are caught and
// treated as errors.
#pragma once

#include <chrono>
#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "runtime/informer.h"
#include "runtime/object.h"
#include "runtime/queue.h"
#include "runtime/writer.h"

namespace varda::runtime {

/// The follow-up that reconcile() asks for.
class Action {
 public:
  /// Waits until a watched object changes.
  static Action await_change() { return Action(std::nullopt); }
  /// Like await_change(), but also runs again after this delay.
  static Action after(Duration delay) { return Action(delay); }
  std::optional<Duration> delay() const { return delay_; }

 private:
  explicit Action(std::optional<Duration> delay) : delay_(delay) {}
  std::optional<Duration> delay_;
};

/// A controller with its types erased: what Manager runs.
struct ControllerSpec {
  struct Source {
    Informer::Options informer;
    /// Maps a change to keys of primary objects. Called with the new version, and with the old
    /// version if it differs.
    std::function<std::vector<ObjectKey>(const Stored&, const Caches&)> keys;
    std::optional<Update> owned;  // set: converge() manages objects of this kind
    /// Set and true: the difference between the two versions is irrelevant, and keys() is not
    /// called.
    std::function<bool(const Stored&, const Stored&)> same = nullptr;
    /// Instead of keys: maps both versions at once. Null: there is no such version.
    std::function<std::vector<ObjectKey>(const Stored* before, const Stored* now, const Caches&)>
        change = nullptr;
    std::string index{};  // set: name of an index with the values of index_of
    Informer::IndexOf index_of = nullptr;
  };
  std::string name;  // in logs, metrics and events: "inferencemodel"
  Resource primary;
  std::vector<Source> sources;  // including the primary kind
  std::size_t workers = 1;
  Backoff backoff;
  std::function<Result<Action>(const Context&, const Stored&, Writer&)> reconcile;
  std::function<Result<Action>(const Context&, const ObjectKey&, Writer&)>
      on_deleted;  // may be absent
};

/// The key in the owner reference with controller: true, if it names `primary` (any version of its
/// group).
std::vector<ObjectKey> keys_of_controller(const Stored& child, const Resource& primary);

/// The kinds that a reconciler of T watches.
template <Object T>
class Watches {
 public:
  explicit Watches(ControllerSpec& spec) : spec_(spec) {}

  /// Child kinds: a change of a C reconciles the T that controls it. converge() manages kind C for
  /// this controller.
  template <Object C>
  Watches& owns(Update update = Update::kInPlace) {
    spec_.sources.push_back(
        {Informer::typed<C>(),
         [](const Stored& s, const Caches&) { return keys_of_controller(s, T::resource()); },
         update});
    return *this;
  }

  /// Like owns(), for a kind that a server may lack (Informer::served()). If it is missing,
  /// converge() must not get objects of it.
  template <Object C>
  Watches& owns_if_served(Update update = Update::kInPlace) {
    owns<C>(update);
    spec_.sources.back().informer.optional = true;
    return *this;
  }

  /// Any other kind: `map(const W&)` or `map(const W&, const Caches&)` returns the keys of the
  /// affected Ts as std::vector<ObjectKey>. Called on informer threads: must be quick and must not
  /// wait.
  template <Object W, typename Map>
  Watches& maps(Map map) {
    spec_.sources.push_back(
        {Informer::typed<W>(),
         [map](const Stored& s, const Caches& caches) -> std::vector<ObjectKey> {
           const std::shared_ptr<const void> held = s.object();
           if (!held) return {};
           const W& object = *static_cast<const W*>(held.get());
           if constexpr (std::invocable<Map, const W&, const Caches&>) {
             return std::invoke(map, object, caches);
           } else {
             return std::invoke(map, object);
           }
         },
         std::nullopt});
    return *this;
  }

  /// Like maps(map), but ignores a change if `same(const W& before, const W& now)` is true.
  template <Object W, typename Map, typename Same>
  Watches& maps(Map map, Same same) {
    maps<W>(std::move(map));
    spec_.sources.back().same = [same](const Stored& before, const Stored& now) {
      const auto a = before.object(), b = now.object();
      return a && b && same(*static_cast<const W*>(a.get()), *static_cast<const W*>(b.get()));
    };
    return *this;
  }

  /// Like maps(), for a map that compares: `map(const W* before, const W* now, const Caches&)`.
  /// A null version does not exist: the object is new, or gone.
  template <Object W, typename Map>
  Watches& changes(Map map) {
    reads<W>();
    spec_.sources.back().change = [map](const Stored* before, const Stored* now,
                                        const Caches& caches) -> std::vector<ObjectKey> {
      const std::shared_ptr<const void> a = before == nullptr ? nullptr : before->object();
      const std::shared_ptr<const void> b = now == nullptr ? nullptr : now->object();
      if (!a && !b) return {};
      return std::invoke(map, static_cast<const W*>(a.get()), static_cast<const W*>(b.get()),
                         caches);
    };
    return *this;
  }

  /// Adds an index for Cache<W>::by_index(name, value). `of(const W&)` returns the index values of
  /// an object as std::vector<std::string>. `of` must be pure and quick. Index names are per kind:
  /// two controllers that declare a name must mean the same index.
  template <Object W, typename Of>
  Watches& indexes(std::string name, Of of) {
    reads<W>();
    spec_.sources.back().index = std::move(name);
    spec_.sources.back().index_of = [of](const Stored& s) -> std::vector<std::string> {
      const std::shared_ptr<const void> held = s.object();
      return held ? std::invoke(of, *static_cast<const W*>(held.get()))
                  : std::vector<std::string>();
    };
    return *this;
  }

  /// Keeps W in the caches for reconcile() to read; its changes reconcile nothing.
  template <Object W>
  Watches& reads() {
    spec_.sources.push_back({Informer::typed<W>(), nullptr, std::nullopt});
    return *this;
  }

  /// Default: one worker. The name defaults to T's plural.
  Watches& workers(std::size_t count) {
    spec_.workers = count;
    return *this;
  }
  Watches& name(std::string text) {
    spec_.name = std::move(text);
    return *this;
  }
  Watches& backoff(Backoff backoff) {
    spec_.backoff = backoff;
    return *this;
  }

 private:
  ControllerSpec& spec_;
};

/// Builds the spec of a reconciler of T. `reconciler` outlives the controller. With several workers
/// it is called from several threads.
template <Object T, typename Reconciler>
ControllerSpec make_controller(Reconciler& reconciler) {
  ControllerSpec spec;
  spec.primary = T::resource();
  spec.name = spec.primary.plural;
  spec.sources.push_back(
      {Informer::typed<T>(),
       [](const Stored& s, const Caches&) { return std::vector<ObjectKey>{s.metadata.key()}; },
       std::nullopt});
  Watches<T> watches(spec);
  reconciler.watches(watches);
  spec.reconcile = [&reconciler](const Context& ctx, const Stored& stored,
                                 Writer& writer) -> Result<Action> {
    const std::shared_ptr<const void> held = stored.object();
    if (!held) return Action::await_change();
    return reconciler.reconcile(ctx, *static_cast<const T*>(held.get()), writer);
  };
  if constexpr (requires(const Context& ctx, const ObjectKey& key, Writer& writer) {
                  reconciler.on_deleted(ctx, key, writer);
                }) {
    spec.on_deleted = [&reconciler](const Context& ctx, const ObjectKey& key,
                                    Writer& writer) -> Result<Action> {
      return reconciler.on_deleted(ctx, key, writer);
    };
  }
  return spec;
}

}  // namespace varda::runtime
