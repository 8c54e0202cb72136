// The server's own controllers: garbage collection by owner references, the end of namespaces and
// of CRDs, default service accounts.
//
// One thread follows every object of the store and keeps a graph of owner references. Changes
// enqueue tasks without duplicates. The tasks write through Objects, as clients do.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>

#include "apiserver/internal/core.h"
#include "apiserver/internal/objects.h"

namespace varda::apiserver {

class Controllers {
 public:
  Controllers(Core& core, Objects& objects) : core_(core), objects_(objects) {}
  ~Controllers() { stop(); }

  void start();
  void stop();
  /// One pass of the thread's loop, for callers that use no start(). nullopt: call again at once.
  /// Otherwise: the time of the next call, unless a write comes before.
  std::optional<SteadyTime> step();
  /// True when the controllers have processed everything up to the store's present revision.
  bool settle(const Context& ctx);

 private:
  struct Owner {
    std::string uid, api_version, kind, name;
    bool blocks = false;
    friend bool operator==(const Owner&, const Owner&) = default;
  };
  struct Node {
    std::string key;  // in the store
    std::string uid;
    meta::ObjectKey name;
    std::vector<Owner> owners;
    bool deleting = false;
    bool waits_foreground = false;  // has the finalizer foregroundDeletion
    bool waits_orphan = false;
  };
  enum class Task { kCollect, kForeground, kOrphan, kNamespace, kServiceAccount, kCrd, kCrdNames };
  using Work = std::pair<Task, std::string>;  // task, storage key of the object

  void run(const std::stop_token& stop);
  Status resync();
  void note(const store::Entry& entry, const Json& object);
  void note_end(const std::string& key);
  void forget(const std::string& key);
  void add(Task task, const std::string& key);
  /// False: retry later.
  bool work(const Work& work);
  bool collect(const std::string& key);
  bool foreground(const std::string& key);
  bool orphan(const std::string& key);
  bool end_namespace(const std::string& name);
  bool end_crd(const std::string& key);
  bool accept_names(const std::string& key);
  void note_event(const store::Entry& entry, const Json& object);
  /// Removes expired Events and those beyond events_max; rate-limited.
  void sweep_events(SteadyTime now);
  bool service_account(const std::string& ns);
  bool remove(const Node& node, const std::string& propagation, bool check_uid = true);
  bool drop_finalizer(const Node& node, std::string_view finalizer);
  std::vector<const Node*> dependents(const std::string& uid) const;

  Core& core_;
  Objects& objects_;
  std::unordered_map<std::string, Node> nodes_;                        // by key
  std::unordered_map<std::string, std::string> by_uid_;                // uid -> key
  std::unordered_map<std::string, std::set<std::string>> dependents_;  // owner's uid -> keys
  using EventAge =
      std::pair<WallTime, store::Revision>;  // time of the last occurrence; ties by revision
  std::map<std::string, EventAge> events_;   // by key
  SteadyTime next_sweep_{};
  bool closed_ = false;  // the store is closed; no more events
  std::unique_ptr<store::Watch> watch_;
  std::deque<Work> queue_;
  std::set<Work> queued_;
  std::map<Work, SteadyTime> later_;

  std::mutex mutex_;
  std::condition_variable_any settled_;
  store::Revision seen_ = 0;  // guarded by mutex_
  bool idle_ = false;         // guarded by mutex_
  std::jthread thread_;
};

}  // namespace varda::apiserver
