// PodRunner: keeps the pods of one node running, like a kubelet, and reports their status.
//
//   node::PodRunner::Options options{
//       .root = data, .node_name = "edge0", .node_address = "127.9.1.2"};
//   TRY(auto runner, node::PodRunner::open(std::move(options), *driver, host));
//   std::jthread thread([&](std::stop_token stop) { (void)runner->run(Context(stop)); });
//   runner->set_desired(pods);  // on every change; while disconnected, the last set stays valid
//
// Below `root`/pods every pod has a directory NS_NAME_UID:
//
//   record.json           the pod as last desired, its address, each container's process and
//                         history; written before and after every start, so that a runner killed
//                         at any moment finds its children or starts them again, never twice
//   config.json  0600     its ConfigMaps and Secrets, for starts without the API server
//   volumes/NAME/         emptyDir, configMap, secret, downwardAPI, projected
//   CONTAINER.log         output; CONTAINER.log.1 has the part before it, CONTAINER.previous.log
//                         the previous run
//
// Containers outlive the runner: the next runner adopts them by process id and start time.
// Completed init containers do not run again. To stop everything, call set_desired({}) and wait for
// idle().
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/context.h"
#include "base/rng.h"
#include "codec/json.h"
#include "node/driver.h"
#include "node/prober.h"
#include "os/file_system.h"

namespace varda::node {

using codec::Json;

struct PodName {
  std::string ns, name, uid;
  friend auto operator<=>(const PodName&, const PodName&) = default;
};

/// The runner's connection to the outside. Calls come from the thread in run() or step(), one at a
/// time, without locks held.
class Host {
 public:
  virtual ~Host() = default;
  /// The pod's whole status, called when it changed, and once per pod after a restart. Must not
  /// block: queue it.
  virtual void status_changed(const PodName& pod, const Json& status) = 0;
  /// All containers of a deleted pod have ended and its directory is gone. The host must now delete
  /// the object, with grace 0 and the uid as precondition. Also called for pods that are no longer
  /// desired; hosts may ignore that. Must not block.
  virtual void finished(const PodName& pod) = 0;
  /// An Event of the pod for users: type, reason, message. Must not block.
  virtual void event(const PodName& pod, const std::string& type, const std::string& reason,
                     const std::string& message) = 0;
  /// ConfigMap or Secret objects (`data` of a Secret in base64). kNotFound: it does not exist.
  /// kUnavailable: no answer now, so the previous version is used. May take seconds.
  virtual Result<Json> config_map(const std::string& ns, const std::string& name) = 0;
  virtual Result<Json> secret(const std::string& ns, const std::string& name) = 0;
};

/// One thread calls run() or step(). Any thread may call set_desired(), desired() and idle().
class PodRunner {
 public:
  struct Options {
    os::Path root;  // of the agent; pods live in root/pods
    std::string node_name;
    std::string node_address;  // of pods with hostNetwork
    std::optional<std::string>
        host_ip;                 // hostIP in statuses; "": not reported; absent: node_address
    std::size_t pods_max = 250;  // excess pods are refused with an event
    std::size_t log_bytes_max = 10u << 20;  // a larger log is rotated; one older part is kept
    std::chrono::seconds backoff_first{10};
    std::chrono::seconds backoff_max{300};
    std::chrono::seconds backoff_reset{
        600};  // a container that runs this long restarts without backoff
  };

  /// Reads the records, adopts running containers, and stops those without a record. The recorded
  /// pods are desired until the first set_desired(). All references outlive the runner. `prober`
  /// null: the runner creates a real one.
  static Result<std::unique_ptr<PodRunner>> open(Options options, Driver& driver, Host& host,
                                                 os::FileSystem& fs = os::real_file_system(),
                                                 const Clock& clock = system_clock(),
                                                 Rng& rng = system_rng(), Prober* prober = nullptr);
  virtual ~PodRunner() = default;

  /// Sets all pods of this node, as whole objects with metadata.uid. A pod with a
  /// deletionTimestamp, or missing from the list, is stopped gracefully. Pods that need its host
  /// ports wait until then. A changed spec of a known uid is ignored like in a kubelet, except
  /// grace period and metadata. Bounded by pods_max.
  virtual void set_desired(std::vector<Json> pods) = 0;

  /// Works until the context is done; containers keep running. Returns success after a stop
  /// request.
  virtual Status run(const Context& ctx) = 0;
  /// One round: does what is due, and returns the next due time, if any. For tests with a manual
  /// clock.
  virtual std::optional<SteadyTime> step() = 0;

  /// The last desired pods, each with its last reported status, without resourceVersion and
  /// managedFields.
  virtual std::vector<Json> desired() const = 0;
  /// Whether no pod is left: nothing runs, and no directory remains.
  virtual bool idle() const = 0;
};

}  // namespace varda::node
