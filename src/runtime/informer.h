// Informer: keeps a copy of one resource's objects by a list and a watch, and notifies handlers of
// changes.
//
//   Informer pods(client, Informer::typed<Pod>({.field_selector = "spec.nodeName=edge0"}));
//   pods.on_change([&](const Change& change) { queue.add(change.key); });
//   std::jthread thread([&](std::stop_token stop) { pods.run(Context(stop)); });
//
// It lists in pages, watches from the list's version, and resumes after a disconnect. It relists
// when the version has expired (410) or cannot be watched. Failures back off with jitter. It never
// ends by itself. It drops metadata.managedFields, which no reader uses and which are half of many
// objects. A write without them leaves the server's managedFields unchanged.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <typeindex>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/context.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "kube/client.h"
#include "meta/patch.h"
#include "meta/selector.h"
#include "runtime/object.h"
#include "runtime/task.h"

namespace varda::runtime {

class Decoder;

/// One object as read. Immutable: a new version is a new Stored.
struct Stored {
  std::string text;  // JSON text: a fifth of the tree's size, and the tree is rarely needed
  meta::ObjectMeta
      metadata;  // without annotations if the informer decodes: the C++ object holds them
  std::shared_ptr<const void> typed = nullptr;  // the C++ object, if it is kept
  std::string problem{};                        // the reason why it is unreadable
  // Set if the C++ object is not kept: makes it from the text.
  std::shared_ptr<Decoder> decoder = nullptr;
  std::uint64_t id = 0;

  /// Parses the whole object; each call makes a new tree.
  Json json() const;
  /// The C++ object; null if unreadable. If only texts are kept, a call may parse the text, and two
  /// calls may give two objects.
  std::shared_ptr<const void> object() const;
};
using StoredPtr = std::shared_ptr<const Stored>;

struct Change {
  ObjectKey key;
  StoredPtr old;  // null: the object is new
  StoredPtr now;  // null: the object is gone
};

class Informer {
 public:
  using Decode = std::function<Result<std::shared_ptr<const void>>(const Json&)>;
  /// The form kept besides the text. A C++ object is two to five times as large as the text. It
  /// pays off for kinds that are scanned, or of which each object is read often.
  enum class Keep { kObject, kText };

  /// Selects objects. All empty: every object of the resource.
  struct Filter {
    std::string ns;
    std::string label_selector;
    std::string field_selector;
    friend bool operator==(const Filter&, const Filter&) = default;
  };
  struct Options {
    Resource resource;
    Filter filter;
    Decode decode;  // absent: no C++ objects are made
    /// Restricts a namespaced resource without filter.ns to these namespaces, each with a list and
    /// a watch. Empty: all.
    std::vector<std::string> namespaces;
    Keep keep = Keep::kObject;
    /// A server may lack the resource. Then the copy is complete and empty, served() is false, and
    /// the list is retried every few minutes.
    bool optional = false;
    std::size_t decoded_max = 128;  // for Keep::kText: limit of cached C++ objects
    std::type_index type = typeid(void);
    meta::ListKeys list_keys = meta::core_list_keys;  // list keys for three-way merges of this kind
    int page_items = 500;
    std::chrono::milliseconds backoff_min{200};
    std::chrono::milliseconds backoff_max{30000};
    std::chrono::seconds watch_timeout{290};  // jittered upwards by half
    Rng* rng = nullptr;                       // null: the machine's; jitter only
    const Clock* clock = nullptr;             // null: the machine's
    metrics::Registry* metrics = nullptr;
    /// Called once per version that decode refuses, on the informer's thread.
    std::function<void(const Stored&)> on_problem;
    /// Removes unread fields from an object before it is stored. Must keep name and version.
    std::function<void(Json&)> trim;
    /// Objects for which this is false are stored reduced: name, namespace, uid, version, labels,
    /// owners and deletion time. They are not decoded, so readers of C++ objects do not see them.
    /// Absent: all objects are stored whole.
    std::function<bool(const Json&)> whole;
  };
  template <Object T>
  static Options typed(Filter filter = {}) {
    Options options;
    options.resource = T::resource();
    options.filter = std::move(filter);
    options.type = typeid(T);
    if constexpr (requires(std::string_view path) { T::list_keys(path); })
      options.list_keys = [](std::string_view path) { return T::list_keys(path); };
    options.decode = [](const Json& json) -> Result<std::shared_ptr<const void>> {
      TRY(T object, T::from_json(json));
      return std::shared_ptr<const void>(std::make_shared<const T>(std::move(object)));
    };
    return options;
  }

  /// `client` outlives the informer.
  Informer(const kube::Client& client, Options options);
  Informer(const Informer&) = delete;
  Informer& operator=(const Informer&) = delete;

  /// Call before run(). A handler is called for every change, one at a time and in order for each
  /// object. The copy has changed by then. No lock is held. Calls come on the informer's thread or
  /// a writer's thread (see wrote()). A handler must be quick and must not throw.
  using Handler = std::function<void(const Change&)>;
  void on_change(Handler handler);

  /// Call before run(). Adds an index for by_index(). `of` is pure. If a name is added twice, the
  /// first index is kept; both must mean the same. `of` is called once for each version, on the
  /// threads that call handlers. It sees readable objects only and, with decoding, only those kept
  /// whole (Options::whole). If `of` throws, the object is left out of this index.
  using IndexOf = std::function<std::vector<std::string>(const Stored&)>;
  void add_index(std::string name, IndexOf of);

  /// The way in which the copy became complete up to a version.
  enum class Progress {
    kListed,   // by a list: changes up to that version may be missing or out of order
    kWatched,  // by an event or a bookmark
  };
  /// Call before run(). Called after the handlers of the changes up to `resource_version`, in order
  /// with them.
  using ProgressHandler = std::function<void(const std::string& resource_version, Progress how)>;
  /// Only for informers with one scope.
  void on_progress(ProgressHandler handler);

  /// Blocks until `ctx` stops. Runs step() of every scope in a loop, on a thread for each scope.
  /// Call it once.
  void run(const Context& ctx);
  /// The number of lists and watches: one for each of Options::namespaces, else one.
  std::size_t scopes() const { return scopes_.size(); }
  /// Lists if needed, then watches until the watch ends. Returns the wait before the next step. One
  /// thread at a time for each scope. An exception (from a handler, a decoder) ends the step, not
  /// the process.
  Duration step(const Context& ctx, std::size_t scope = 0);

  /// True once every object that existed when run() began has been handled. Stays true.
  bool has_synced() const { return unsynced_.load(std::memory_order_acquire) == 0; }

  /// False: the server is known to lack the resource (Options::optional).
  bool served() const { return served_.load(std::memory_order_relaxed); }

  // Reading the copy: any thread, any time. Returned objects stay valid.
  StoredPtr get(const ObjectKey& key) const;
  std::vector<StoredPtr> list(std::string_view ns = "") const;  // sorted by key; "": all namespaces
  /// Objects with an owner reference to `uid`.
  std::vector<StoredPtr> owned_by(const std::string& uid) const;
  /// Objects that the named index has under `value`, sorted by key. CHECKs that the index exists.
  std::vector<StoredPtr> by_index(std::string_view name, std::string_view value) const;
  /// The first of these objects; null: none.
  StoredPtr first_by_index(std::string_view name, std::string_view value) const;
  std::size_t size() const;
  /// The version up to which a scope's copy is complete; "" before the first list.
  std::string resource_version(std::size_t scope = 0) const;

  /// Adds the result of a write by this process, so that reads see it before the watch delivers it.
  /// Ignored where the order is unknown: with filters, non-numeric versions, or versions already
  /// passed. Thread-safe.
  void wrote(const Json& object);

  const Resource& resource() const { return options_.resource; }
  const Filter& filter() const { return options_.filter; }
  const meta::ListKeys& list_keys() const { return options_.list_keys; }
  std::type_index type() const { return options_.type; }

 private:
  /// State of one list and watch. Used by the thread that steps the scope.
  struct Scope {
    std::string ns;
    bool listed = false;
    int refused = 0;  // consecutive watches that the server refused to start or continue
    std::chrono::milliseconds backoff;
  };
  Status list_once(const Context& ctx, std::size_t scope);
  /// The progress of a watch, also of one that ended with an error.
  struct Watched {
    std::optional<SteadyTime> since;  // set: the server began the watch
    std::size_t events = 0;
  };
  Status watch_once(const Context& ctx, std::size_t scope, Watched& watched);
  void apply(kube::WatchEvent event, std::size_t scope);
  void replace(std::vector<StoredPtr> fresh, const std::string& resource_version,
               std::size_t scope);
  std::optional<std::size_t> scope_of(const std::string& ns) const;
  StoredPtr store_of(Json object) const;
  void put(StoredPtr object, bool whatever_version = false) REQUIRES(order_);
  void drop(const ObjectKey& key) REQUIRES(order_);
  void passed(const std::string& resource_version, std::size_t scope) REQUIRES(order_);
  StoredPtr swap(const ObjectKey& key, StoredPtr now) REQUIRES(order_) EXCLUDES(mutex_);
  void dispatch(const Change& change) REQUIRES(order_);

  /// Orders objects by key, without a second copy of the key.
  struct ByKey {
    using is_transparent = void;
    static auto key(const StoredPtr& object) {
      return std::tie(object->metadata.ns, object->metadata.name);
    }
    static auto key(const ObjectKey& name) { return std::tie(name.ns, name.name); }
    bool operator()(const auto& a, const auto& b) const { return key(a) < key(b); }
  };
  /// Objects by index value; each list is sorted by key.
  struct Index {
    using Objects = std::map<std::string, std::vector<StoredPtr>, std::less<>>;
    std::string name;
    IndexOf of;
    Objects objects;
    std::unordered_multimap<const Stored*, Objects::iterator>
        places;  // the places of each object, so that `of` is called once
    void remove(const StoredPtr& object);
    void insert(const std::vector<std::string>& values, const StoredPtr& object);
  };
  const Index& index_of(std::string_view name) const;
  /// Sorted, without duplicates. Does not throw.
  std::vector<std::string> values_of(const Index& index, const Stored& object) const;

  const kube::Client& client_;
  Options options_;
  std::shared_ptr<Decoder> decoder_;  // null: no C++ objects are made
  std::vector<Handler> handlers_;
  ProgressHandler progress_;
  std::vector<Scope> scopes_;  // never empty; fixed number
  std::vector<std::atomic<bool>> synced_;
  std::atomic<std::size_t> unsynced_;
  std::atomic<bool> served_{true};

  Mutex order_;  // held over one change and its handlers, so that every handler sees the same order
  mutable Mutex mutex_;
  std::set<StoredPtr, ByKey> objects_ GUARDED_BY(mutex_);
  std::vector<Index>
      indexes_;  // the first index holds owner uids; the entries are guarded by mutex_
  std::vector<std::string> versions_ GUARDED_BY(mutex_);  // one for each of scopes_
};

/// For callers that schedule the work themselves; one task for each scope. The informer and the
/// clock outlive it.
Task informer_task(Informer& informer, const Clock& clock = system_clock(), std::size_t scope = 0);

/// Typed access to an informer's copy. A cheap value; valid as long as the informer. Thread-safe.
template <Object T>
class Cache {
 public:
  explicit Cache(const Informer& informer) : informer_(&informer) {
    CHECK(informer.type() == std::type_index(typeid(T)));
  }

  /// Null: missing or unreadable.
  std::shared_ptr<const T> get(const ObjectKey& key) const {
    const StoredPtr stored = informer_->get(key);
    return stored ? std::static_pointer_cast<const T>(stored->object()) : nullptr;
  }
  std::vector<std::shared_ptr<const T>> list(std::string_view ns = "") const {
    return typed(informer_->list(ns));
  }
  std::vector<std::shared_ptr<const T>> select(const meta::LabelSelector& selector,
                                               std::string_view ns = "") const {
    std::vector<StoredPtr> some = informer_->list(ns);
    std::erase_if(
        some, [&](const StoredPtr& stored) { return !selector.matches(stored->metadata.labels); });
    return typed(some);
  }
  std::vector<std::shared_ptr<const T>> owned_by(const std::string& uid) const {
    return typed(informer_->owned_by(uid));
  }
  /// Objects by an index declared with Watches::indexes.
  std::vector<std::shared_ptr<const T>> by_index(std::string_view name,
                                                 std::string_view value) const {
    return typed(informer_->by_index(name, value));
  }
  /// The first of these objects by key; null: none. Reads one object, however many there are.
  std::shared_ptr<const T> first_by_index(std::string_view name, std::string_view value) const {
    const StoredPtr stored = informer_->first_by_index(name, value);
    return stored ? std::static_pointer_cast<const T>(stored->object()) : nullptr;
  }
  std::size_t size() const { return informer_->size(); }

 private:
  static std::vector<std::shared_ptr<const T>> typed(const std::vector<StoredPtr>& all) {
    std::vector<std::shared_ptr<const T>> out;
    out.reserve(all.size());
    for (const StoredPtr& stored : all) {
      if (auto object = stored->object())
        out.push_back(std::static_pointer_cast<const T>(std::move(object)));
    }
    return out;
  }
  const Informer* informer_;
};

/// The copies that a process keeps, one informer per resource. Owned by a Manager; reading is
/// thread-safe once it runs.
class Caches {
 public:
  /// CHECKs that T is watched, by Manager::watch<T>() or a controller's watches().
  template <Object T>
  Cache<T> of() const {
    const Informer* informer = find(T::resource());
    CHECK(informer != nullptr);
    return Cache<T>(*informer);
  }
  /// Finds by resource; null: not watched.
  Informer* find(const Resource& resource) const;
  /// Finds by an object's apiVersion and kind; null: not watched.
  Informer* find(std::string_view api_version, std::string_view kind) const;
  const std::vector<std::unique_ptr<Informer>>& all() const { return informers_; }
  /// Returns the resource's informer, and adds it if missing. An existing informer keeps its
  /// options. CHECKs that it has the same type, and the same filter unless `options` has none.
  Informer& add(const kube::Client& client, Informer::Options options);
  bool synced() const;

 private:
  std::vector<std::unique_ptr<Informer>> informers_;
};

}  // namespace varda::runtime
