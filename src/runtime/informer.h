// Informer: keeps a copy of one resource's objects by one list and one watch, and tells handlers what changes.
//
//   Informer pods(client, Informer::typed<Pod>({.field_selector = "spec.nodeName=edge0"}));
//   pods.on_change([&](const Change& change) { queue.add(change.key); });
//   std::jthread thread([&](std::stop_token stop) { pods.run(Context(stop)); });
//
// It lists in pages, watches from the list's version, resumes from the last version after a disconnect, lists again when that is
// gone (410) or cannot be watched from, and backs off with jitter between failures. It never ends by itself. What nobody reads of
// an object (metadata.managedFields, half of many an object) is not kept; a server takes a write without them as no word about
// them.
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
#include "runtime/strand.h"

namespace varda::runtime {

class Decoder;

/// One object as read. Never changes: a new version is a new Stored.
struct Stored {
  std::string text;                             // JSON: a fifth of what the tree would take, and few ask for that
  meta::ObjectMeta metadata;                    // an informer's that decodes: without annotations, which the C++ object has
  std::shared_ptr<const void> typed = nullptr;  // the C++ object, where it is kept
  std::string problem{};                        // why it could not be read
  // Where it is not kept: who makes it, and of what.
  std::shared_ptr<Decoder> decoder = nullptr;
  std::uint64_t id = 0;

  /// The whole object as a tree, made by each call.
  Json json() const;
  /// The C++ object; null if it could not be read. Where only texts are kept, two calls may give two objects, and take the time
  /// that reading the text does.
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
  /// Beside the text. A C++ object is two to five times as large as that, and worth its memory where all of a kind are looked
  /// through, or each is read again and again.
  enum class Keep { kObject, kText };

  /// Which objects. All empty: every object of the resource.
  struct Filter {
    std::string ns;
    std::string label_selector;
    std::string field_selector;
    friend bool operator==(const Filter&, const Filter&) = default;
  };
  struct Options {
    Resource resource;
    Filter filter;
    Decode decode;  // absent: objects stay trees
    /// Of a namespaced resource without filter.ns: only what is in these, by a list and a watch of each. None: all there are.
    std::vector<std::string> namespaces;
    Keep keep = Keep::kObject;
    /// A server may lack the resource: then the copy is complete and empty, served() is false, and the list is tried again every
    /// few minutes.
    bool optional = false;
    std::size_t decoded_max = 128;  // of Keep::kText: how many C++ objects are kept all the same, those that were read last
    std::type_index type = typeid(void);
    meta::ListKeys list_keys = meta::core_list_keys;  // of three-way merges of this kind
    int page_items = 500;
    std::chrono::milliseconds backoff_min{200};
    std::chrono::milliseconds backoff_max{30000};
    std::chrono::seconds watch_timeout{290};  // jittered upwards by half
    Rng* rng = nullptr;                       // null: the machine's; jitter only
    const Clock* clock = nullptr;             // null: the machine's
    metrics::Registry* metrics = nullptr;
    /// An object that decode refuses: called once per version, on the informer's thread.
    std::function<void(const Stored&)> on_problem;
    /// Takes out of an object, before it is kept, what nobody here reads. Its name and version stay.
    std::function<void(Json&)> trim;
    /// An object of which this is false is kept as little more than its name: name, namespace, uid, version, labels, owners and
    /// the time of its deletion. It is not decoded: for readers of C++ objects it is not there. Absent: all are kept whole.
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

  /// Before run() only. Called for every change, one at a time and in order for each object, after the copy has changed; with no
  /// lock held, on the informer's thread or on that of a writer (see wrote()). Must be quick and must not throw.
  using Handler = std::function<void(const Change&)>;
  void on_change(Handler handler);

  /// Before run() only. Keeps the objects by what `of` says of each, for by_index(). Pure. Of two of one name the first is kept:
  /// they say the same. Called once for each version, on the threads that call handlers; with readable objects only and, where
  /// there are C++ objects, with those alone that are kept whole (Options::whole). An object for which it throws is in no place of
  /// this index.
  using IndexOf = std::function<std::vector<std::string>(const Stored&)>;
  void add_index(std::string name, IndexOf of);

  /// How the copy became complete up to a version.
  enum class Progress {
    kListed,   // by a list: of what came and went before that version nothing is known, and its changes came in no order
    kWatched,  // by an event or a bookmark
  };
  /// Before run() only. Called after the handlers of what made the copy complete up to `resource_version`, in order with them.
  using ProgressHandler = std::function<void(const std::string& resource_version, Progress how)>;
  /// For informers with one scope.
  void on_progress(ProgressHandler handler);

  /// Blocks until `ctx` stops: step() of every scope again and again, on a thread for each. Once.
  void run(const Context& ctx);
  /// How many lists and watches there are: one for each of Options::namespaces, else one.
  std::size_t scopes() const { return scopes_.size(); }
  /// A list where one is needed, then a watch until it ends. Returns how long to wait before the next step. One thread at a time
  /// for each scope. What throws in it (a handler, a decoder) ends the step, not the process.
  Duration step(const Context& ctx, std::size_t scope = 0);

  /// Every object that existed when run() began has been seen and handled. Stays true.
  bool has_synced() const { return unsynced_.load(std::memory_order_acquire) == 0; }

  /// False: the server has no such resource, as far as it is known (Options::optional).
  bool served() const { return served_.load(std::memory_order_relaxed); }

  // Reading the copy: any thread, any time. What is returned stays valid.
  StoredPtr get(const ObjectKey& key) const;
  std::vector<StoredPtr> list(std::string_view ns = "") const;  // by key; "" all namespaces
  /// Objects with an owner reference to `uid`.
  std::vector<StoredPtr> owned_by(const std::string& uid) const;
  /// Those of which the index of that name says so, by key. CHECKs that there is such an index.
  std::vector<StoredPtr> by_index(std::string_view name, std::string_view value) const;
  std::size_t size() const;
  /// The version up to which the copy of a scope is known to be complete; "" before the first list.
  std::string resource_version(std::size_t scope = 0) const;

  /// Tells the informer what a write of this process returned, so that reads after a write see it before the watch brings it.
  /// Ignored where the order cannot be known (filters, versions that are no numbers, versions already passed). Thread-safe.
  void wrote(const Json& object);

  const Resource& resource() const { return options_.resource; }
  const Filter& filter() const { return options_.filter; }
  const meta::ListKeys& list_keys() const { return options_.list_keys; }
  std::type_index type() const { return options_.type; }

 private:
  /// One list and watch, and how they fare. Of the thread that steps it.
  struct Scope {
    std::string ns;
    bool listed = false;
    int refused = 0;  // watches in a row that the server would not begin or go on with
    std::chrono::milliseconds backoff;
  };
  Status list_once(const Context& ctx, std::size_t scope);
  /// How far a watch got, also where it ended with an error.
  struct Watched {
    std::optional<SteadyTime> since;  // set: the server began it
    std::size_t events = 0;
  };
  Status watch_once(const Context& ctx, std::size_t scope, Watched& watched);
  void apply(kube::WatchEvent event, std::size_t scope);
  void replace(std::vector<StoredPtr> fresh, const std::string& resource_version, std::size_t scope);
  std::optional<std::size_t> scope_of(const std::string& ns) const;
  StoredPtr store_of(Json object) const;
  void put(StoredPtr object, bool whatever_version = false) REQUIRES(order_);
  void drop(const ObjectKey& key) REQUIRES(order_);
  void passed(const std::string& resource_version, std::size_t scope) REQUIRES(order_);
  StoredPtr swap(const ObjectKey& key, StoredPtr now) REQUIRES(order_) EXCLUDES(mutex_);
  void dispatch(const Change& change) REQUIRES(order_);

  /// Objects by key, without a second copy of the key.
  struct ByKey {
    using is_transparent = void;
    static auto key(const StoredPtr& object) { return std::tie(object->metadata.ns, object->metadata.name); }
    static auto key(const ObjectKey& name) { return std::tie(name.ns, name.name); }
    bool operator()(const auto& a, const auto& b) const { return key(a) < key(b); }
  };
  /// Objects by what is said of them; each list by key.
  struct Index {
    using Objects = std::map<std::string, std::vector<StoredPtr>, std::less<>>;
    std::string name;
    IndexOf of;
    Objects objects;
    std::unordered_multimap<const Stored*, Objects::iterator> places;  // what was said once need not be asked again
    void remove(const StoredPtr& object);
    void insert(const std::vector<std::string>& values, const StoredPtr& object);
  };
  /// Sorted, each once. Does not throw.
  std::vector<std::string> values_of(const Index& index, const Stored& object) const;

  const kube::Client& client_;
  Options options_;
  std::shared_ptr<Decoder> decoder_;  // null: objects stay trees
  std::vector<Handler> handlers_;
  ProgressHandler progress_;
  std::vector<Scope> scopes_;  // never empty; their number stays
  std::vector<std::atomic<bool>> synced_;
  std::atomic<std::size_t> unsynced_;
  std::atomic<bool> served_{true};

  Mutex order_;  // held over one change and its handlers, so that every handler sees the same order
  mutable Mutex mutex_;
  std::set<StoredPtr, ByKey> objects_ GUARDED_BY(mutex_);
  std::vector<Index> indexes_;                            // the first: by the uids of owners; their entries are guarded by mutex_
  std::vector<std::string> versions_ GUARDED_BY(mutex_);  // of scopes_
};

/// For a driver of its own, one for each scope. The informer and the clock outlive it.
Strand informer_strand(Informer& informer, const Clock& clock = system_clock(), std::size_t scope = 0);

/// Typed reading of an informer's copy. A cheap value; valid as long as the informer. Thread-safe.
template <Object T>
class Cache {
 public:
  explicit Cache(const Informer& informer) : informer_(&informer) { CHECK(informer.type() == std::type_index(typeid(T))); }

  /// Null: not there, or unreadable.
  std::shared_ptr<const T> get(const ObjectKey& key) const {
    const StoredPtr stored = informer_->get(key);
    return stored ? std::static_pointer_cast<const T>(stored->object()) : nullptr;
  }
  std::vector<std::shared_ptr<const T>> list(std::string_view ns = "") const { return typed(informer_->list(ns)); }
  std::vector<std::shared_ptr<const T>> select(const meta::LabelSelector& selector, std::string_view ns = "") const {
    std::vector<StoredPtr> some = informer_->list(ns);
    std::erase_if(some, [&](const StoredPtr& stored) { return !selector.matches(stored->metadata.labels); });
    return typed(some);
  }
  std::vector<std::shared_ptr<const T>> owned_by(const std::string& uid) const { return typed(informer_->owned_by(uid)); }
  /// Of an index that somebody declared (Watches::indexes).
  std::vector<std::shared_ptr<const T>> by_index(std::string_view name, std::string_view value) const {
    return typed(informer_->by_index(name, value));
  }
  std::size_t size() const { return informer_->size(); }

 private:
  static std::vector<std::shared_ptr<const T>> typed(const std::vector<StoredPtr>& all) {
    std::vector<std::shared_ptr<const T>> out;
    out.reserve(all.size());
    for (const StoredPtr& stored : all) {
      if (auto object = stored->object()) out.push_back(std::static_pointer_cast<const T>(std::move(object)));
    }
    return out;
  }
  const Informer* informer_;
};

/// The copies a process keeps, one informer a resource. Owned by a Manager; reading is thread-safe once it runs.
class Caches {
 public:
  /// CHECKs that somebody watches T: Manager::watch<T>(), or a controller's watches().
  template <Object T>
  Cache<T> of() const {
    const Informer* informer = find(T::resource());
    CHECK(informer != nullptr);
    return Cache<T>(*informer);
  }
  /// By resource; null: nobody watches it.
  Informer* find(const Resource& resource) const;
  /// By apiVersion and kind of an object; null: nobody watches it.
  Informer* find(std::string_view api_version, std::string_view kind) const;
  const std::vector<std::unique_ptr<Informer>>& all() const { return informers_; }
  /// The informer that now serves the resource: an earlier one, if there is one, which keeps what it keeps. CHECKs that it has the
  /// same type, and the same filter unless none is asked for.
  Informer& add(const kube::Client& client, Informer::Options options);
  bool synced() const;

 private:
  std::vector<std::unique_ptr<Informer>> informers_;
};

}  // namespace varda::runtime
