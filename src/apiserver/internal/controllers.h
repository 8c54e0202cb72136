// The server's own controllers: garbage collection by owner references, the end of namespaces and of CRDs, default service
// accounts.
//
// One thread follows every object of the store and keeps a graph of who owns whom; what a change may require is put into a
// queue without doubles, and worked off through Objects like any client's writes.
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
  /// What the thread does between two waits, for a driver of its own, instead of start(). Nothing: at once again; else when there
  /// is something to do if nothing is written before.
  std::optional<SteadyTime> step();
  /// True when everything up to the store's present revision has been seen and done.
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
    bool waits_foreground = false;  // has the finalizer
    bool waits_orphan = false;
  };
  enum class Task { kCollect, kForeground, kOrphan, kNamespace, kServiceAccount, kCrd, kCrdNames };
  using Work = std::pair<Task, std::string>;  // and the key of the object in the store

  void run(const std::stop_token& stop);
  Status resync();
  void note(const store::Entry& entry, const Json& object);
  void note_end(const std::string& key);
  void forget(const std::string& key);
  void add(Task task, const std::string& key);
  /// False: try again later.
  bool work(const Work& work);
  bool collect(const std::string& key);
  bool foreground(const std::string& key);
  bool orphan(const std::string& key);
  bool end_namespace(const std::string& name);
  bool end_crd(const std::string& key);
  bool accept_names(const std::string& key);
  void note_event(const store::Entry& entry, const Json& object);
  /// Removes Events that are too old or too many; at most once in a while.
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
  using EventAge = std::pair<WallTime, store::Revision>;               // when it was last told; equal seconds: by its write
  std::map<std::string, EventAge> events_;                             // by key
  SteadyTime next_sweep_{};
  bool closed_ = false;  // the store is; nothing more will come
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
