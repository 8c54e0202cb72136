// Artifact store: model and dataset archives on one node's disk, by the SHA-256 of the archive.
//
// An artifact is a directory that appears complete or not at all: the archive goes to a scratch file and through SHA-256,
// decompression and extraction in one pass; what it becomes is synced and renamed into its place. Then only the tree stays. Models
// that name the same digest share one tree and one download.
//
//   root/HEX/…               the artifacts
//   root/.archives/HEX      the archive itself, where others are to have it from here
//   root/.scratch/HEX.part   a download that can go on; HEX.tree: an extraction, cleared when the store is opened
//   root/.trees/HEX          what the tree held when it was unpacked, to look it over by (inspect.h)
//   root/.marks, .kept       what people and the store tell each other (marks.h)
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
  os::Path directory;       // valid until the artifact is removed or evicted
  std::uint64_t bytes = 0;  // of all its files
};

/// What others can have of an archive from here.
struct Archive {
  std::unique_ptr<os::File> file;  // at its beginning
  std::uint64_t bytes = 0;         // that are there
  std::uint64_t total = 0;         // of the whole; 0: not known yet. Bytes of a part are not verified yet
};

/// Owns all below its root, alone: whoever opens it sees to it that no other process does. Thread-safe.
class Store {
 public:
  struct Options {
    os::Path root;                     // on the file system where models are exposed
    std::vector<os::Path> file_roots;  // file URLs are read below these only; none: file URLs are refused
    Limits limits;
    std::uint64_t capacity_bytes = 0;  // of all artifacts together; 0: no limit but the disk. What cannot fit evicts nothing
    Transport transport = {};          // what it holds outlives the store
  };

  /// Opens or creates the store and clears what a crash left half extracted. `fs` and `http` outlive it.
  static Result<std::unique_ptr<Store>> open(Options options, os::FileSystem& fs, net::HttpClient& http);
  virtual ~Store() = default;

  /// Makes the artifact present and fit for `request.framework`. Idempotent; present already: no network. Blocks until done or
  /// the context is; a partial download is kept and continued next time. Concurrent calls for one digest share one download.
  virtual Outcome<Installed> ensure(const Context& ctx, const Request& request, const ProgressSink& progress = {}) = 0;

  /// The artifact, if it is there and not known to be damaged; counts as a use of it.
  virtual std::optional<Installed> find(const codec::Sha256& digest) = 0;
  virtual std::vector<codec::Sha256> list() const = 0;
  virtual std::uint64_t bytes() const = 0;

  /// What must not be evicted, besides what is exposed (has a second name on the disk) or pinned. Partial downloads of anything
  /// else go. What was kept before is the last to be evicted, as far as this process remembers.
  virtual void keep(std::set<codec::Sha256> wanted) = 0;
  /// Archives to keep beside their trees, for others: of what is installed from now on. Others are removed. They count as bytes of
  /// the store and are the first to be evicted.
  virtual void keep_archives(std::set<codec::Sha256> /*wanted*/) {}
  /// The archive, or the part of it that was downloaded so far. Nothing: there is none, and none on its way.
  virtual std::optional<Archive> archive(const codec::Sha256& /*digest*/) { return std::nullopt; }
  /// It is there, whole.
  virtual bool has_archive(const codec::Sha256& /*digest*/) const { return false; }
  /// Does what people asked for with marks. Returns the kept artifacts that are newly known to be damaged: ensure() installs them
  /// anew, beside what models show of them. Cheap; every few seconds.
  virtual std::vector<codec::Sha256> read_marks() { return {}; }
  /// Removes least recently used artifacts that are neither exposed nor kept nor pinned until `bytes` are freed or none is left.
  /// Returns what was freed.
  virtual Result<std::uint64_t> evict(std::uint64_t bytes) = 0;
  /// Removes one artifact, fine if missing. kConflict: it is exposed.
  virtual Status remove(const codec::Sha256& digest) = 0;
};

}  // namespace varda::artifact
