// PodRunner: keeps the pods of one node running, as a kubelet does, and tells their status.
//
//   node::PodRunner::Options options{.root = data, .node_name = "edge0", .node_address = "127.9.1.2"};
//   TRY(auto runner, node::PodRunner::open(std::move(options), *driver, host));
//   std::jthread thread([&](std::stop_token stop) { (void)runner->run(Context(stop)); });
//   runner->set_desired(pods);            // every time the set changes; never called while cut off: the last set counts
//
// Below `root`/pods every pod has a directory NS_NAME_UID:
//
//   record.json           the pod as last desired, its address, each container's process and past; written before and after every
//                         start, so that a runner killed at any moment finds its children or starts them again, never twice
//   config.json  0600     the ConfigMaps and Secrets it used: a start without the API server takes them from here
//   volumes/NAME/         emptyDir, configMap, secret, downwardAPI, projected
//   CONTAINER.log         what it wrote; CONTAINER.log.1 the part before, CONTAINER.previous.log the run before
//
// Containers outlive the runner: a runner that stops leaves them, the next one adopts them by process id and start time. Init
// containers that completed do not run again. To end all, set_desired({}) and wait for idle().
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

/// What the runner needs from outside. Calls come from the thread in run() or step(), one at a time, without locks held.
class Host {
 public:
  virtual ~Host() = default;
  /// The pod's whole status, when it differs from the last one told; after a restart once for every pod. Must not block: queue it.
  virtual void status_changed(const PodName& pod, const Json& status) = 0;
  /// All containers of a pod that was to be deleted have ended and its directory is gone: delete the object now (grace 0, with
  /// the uid as precondition). Also told for pods that are no longer desired; there it may be ignored. Must not block.
  virtual void finished(const PodName& pod) = 0;
  /// Something a user should see on the pod: (type, reason, message) of an Event. Must not block.
  virtual void event(const PodName& pod, const std::string& type, const std::string& reason, const std::string& message) = 0;
  /// ConfigMap or Secret objects (`data` of a Secret in base64). kNotFound: not there. kUnavailable: cannot be asked now; then
  /// what the pod used before counts. May take up to seconds.
  virtual Result<Json> config_map(const std::string& ns, const std::string& name) = 0;
  virtual Result<Json> secret(const std::string& ns, const std::string& name) = 0;
};

/// One thread is in run() or step(); set_desired(), desired(), statuses() and idle() may be called from any.
class PodRunner {
 public:
  struct Options {
    os::Path root;  // the agent's; pods live in root/pods
    std::string node_name;
    std::string node_address;               // of pods with hostNetwork
    std::optional<std::string> host_ip;     // what statuses report as hostIP, "" nothing; absent: node_address
    std::size_t pods_max = 250;             // further ones are refused with an event
    std::size_t log_bytes_max = 10u << 20;  // then a log is rotated; one older part is kept
    std::chrono::seconds backoff_first{10};
    std::chrono::seconds backoff_max{300};
    std::chrono::seconds backoff_reset{600};  // a container that ran that long starts over with the back-off
  };

  /// Reads the records, adopts what still runs and ends what belongs to no record. The pods of the records are desired until
  /// set_desired() says otherwise. `driver`, `host` and the others outlive it. `prober` null: a real one of its own.
  static Result<std::unique_ptr<PodRunner>> open(Options options, Driver& driver, Host& host,
                                                 os::FileSystem& fs = os::real_file_system(), const Clock& clock = system_clock(),
                                                 Rng& rng = system_rng(), Prober* prober = nullptr);
  virtual ~PodRunner() = default;

  /// The pods of this node, whole objects with metadata.uid, all of them. One with a deletionTimestamp is ended gracefully; one
  /// that is missing too; others wait for the ports of the host's network that it has. A changed spec of a known uid is ignored as
  /// a kubelet does, except grace period and metadata. Bounded by pods_max.
  virtual void set_desired(std::vector<Json> pods) = 0;

  /// Works until the context is done; containers go on. Returns success after a stop request.
  virtual Status run(const Context& ctx) = 0;
  /// One round: does what is due now; when the next is due without an event from outside, if ever. For tests with a clock of their
  /// own.
  virtual std::optional<SteadyTime> step() = 0;

  /// Last desired pods, each with the status as last told; without resourceVersion and managedFields.
  virtual std::vector<Json> desired() const = 0;
  /// True when no pod is left: nothing runs, no directory remains.
  virtual bool idle() const = 0;
};

}  // namespace varda::node
