// Artifact store: model and dataset archives on one node's disk, by the SHA-256 of the archive.
//
// An artifact is a directory that appears complete or not at all. The archive passes through a
// scratch file, SHA-256, decompression and extraction in one pass. The result is synced and renamed
// into place, and only the tree stays. Models with the same digest share one tree and one download.
//
//   root/HEX/…               the artifacts
//   root/.archives/HEX      the archive itself, kept for peer nodes
//   root/.scratch/HEX.part   a resumable download; HEX.tree: an extraction, cleared on open
//   root/.trees/HEX          the record of the unpacked tree, for verification (inspect.h)
//   root/.marks, .kept       messages between operators and the store (operator_requests.h)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "artifact/failure.h"
#include "artifact/limits.h"
#include "artifact/request.h"
#include "artifact/transport.h"
#include "base/context.h"
#include "net/http.h"
#include "os/file_system.h"

namespace varda::artifact {

struct Installed {
  os::Path directory;          // valid until the artifact is removed or evicted
  std::uint64_t bytes = 0;     // of all its files
  std::uint64_t received = 0;  // bytes that this call received over the network, at least
};

/// The part of an archive that peer nodes can get from here.
struct Archive {
  std::unique_ptr<os::File> file;  // positioned at the start
  std::uint64_t bytes = 0;         // available bytes
  std::uint64_t total = 0;         // size of the whole; 0: unknown. Partial bytes are unverified
};

/// Exclusively owns all below its root: the caller must keep other processes out. Thread-safe.
class Store {
 public:
  struct Options {
    os::Path root;                     // on the file system of the model directories
    std::vector<os::Path> file_roots;  // allowed parents of file URLs; empty: none are allowed
    Limits limits;
    std::uint64_t capacity_bytes = 0;  // for all artifacts; 0: only the disk limits. Too large
                                       // artifacts evict nothing
    Transport transport = {};          // its objects outlive the store
  };

  /// Opens or creates the store and clears partial extractions after a crash. `fs` and `http`
  /// outlive it.
  static Result<std::unique_ptr<Store>> open(Options options, os::FileSystem& fs,
                                             net::HttpClient& http);
  virtual ~Store() = default;

  /// Makes the artifact present and fit for `request.framework`. Idempotent; a present artifact
  /// needs no network. Blocks until done or until the context ends. A partial download is kept and
  /// resumed next time. Concurrent calls for one digest share one download.
  virtual Outcome<Installed> ensure(const Context& ctx, const Request& request,
                                    const ProgressSink& progress = {}) = 0;

  /// The artifact, if present and not known to be damaged. Counts as a use.
  virtual std::optional<Installed> find(const codec::Sha256& digest) = 0;
  virtual std::vector<codec::Sha256> list() const = 0;
  virtual std::uint64_t bytes() const = 0;

  /// Sets the digests that must not be evicted, besides exposed (linked) and pinned artifacts.
  /// Partial downloads of other digests are removed. Digests kept earlier are evicted last, as far
  /// as this process remembers.
  virtual void keep(std::set<codec::Sha256> wanted) = 0;
  /// Sets the archives to keep beside the trees, for peer nodes. Applies to later installs; other
  /// archives are removed. Archives count as bytes of the store and are evicted first.
  virtual void keep_archives(std::set<codec::Sha256> /*wanted*/) {}
  /// The archive, or the part downloaded so far. Absent: neither exists.
  virtual std::optional<Archive> archive(const codec::Sha256& /*digest*/) { return std::nullopt; }
  /// True if the whole archive is present.
  virtual bool has_archive(const codec::Sha256& /*digest*/) const { return false; }
  /// Executes the operators' requests. Returns kept artifacts that are newly known to be damaged.
  /// ensure() installs them again, beside the exposed files. Cheap; call it every few seconds.
  virtual std::vector<codec::Sha256> read_requests() { return {}; }
  /// Removes least recently used artifacts until `bytes` are freed. Exposed, kept and pinned
  /// artifacts stay. Returns the freed bytes.
  virtual Result<std::uint64_t> evict(std::uint64_t bytes) = 0;
  /// Removes one artifact. Success if missing. kConflict: it is exposed.
  virtual Status remove(const codec::Sha256& digest) = 0;
};

}  // namespace varda::artifact
