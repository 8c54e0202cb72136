// Blobs: bytes with the name of their SHA-256, and uploads that continue where they stopped.
//
// An upload is a series of pieces. Its blob appears complete and verified, or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "codec/digest.h"
#include "net/http.h"

namespace varda::registry {

struct BlobInfo {
  codec::Sha256 digest;
  std::uint64_t size_bytes = 0;
  WallTime created;
};

/// The bytes [first, first + length) of a blob with `total` bytes.
struct Piece {
  codec::Sha256 digest;
  std::uint64_t first = 0, length = 0, total = 0;
};

/// One piece being received. Keeps its bytes for the next piece when destroyed. One thread at a
/// time.
class BlobUpload {
 public:
  virtual ~BlobUpload() = default;
  /// Quick enough for an I/O thread. kConflict: a newer piece of the same blob took over.
  /// kExhausted: the disk is full. kInvalid: more bytes than the piece has.
  virtual Status write(std::string_view bytes) = 0;
  /// As net::BodyReceiver: false while the store cannot take more bytes.
  virtual bool ready() { return true; }
  virtual void on_ready(std::function<void()> /*wake*/) {}
  enum class State { kPartial, kStored };
  /// Makes the piece durable; after the last byte of the blob also verifies and publishes it.
  /// Blocks. kCorrupt: the digest differs, and the upload is gone. kConflict: as
  /// write().
  virtual Result<State> finish() = 0;
};

struct Usage {
  std::uint64_t stored_bytes = 0, blobs = 0;
  std::uint64_t reserved_bytes = 0, uploads = 0;  // of unfinished uploads, by their totals
};

/// Thread-safe. Uploads end before the store.
class BlobStore {
 public:
  virtual ~BlobStore() = default;
  virtual Result<std::optional<BlobInfo>> find(const codec::Sha256& digest) = 0;
  /// The largest offset at which a piece may begin. Nothing: no unfinished upload.
  virtual std::optional<std::uint64_t> offset(const codec::Sha256& digest) = 0;
  /// Quick enough for an I/O thread. Takes over from a running upload of the same blob.
  /// kAlreadyExists: the blob is stored. kConflict: the piece begins after offset(). kExhausted:
  /// the quota. kUnavailable: too many uploads run, or the last piece is being verified. kInvalid:
  /// the blob is too large for the store.
  virtual Result<std::unique_ptr<BlobUpload>> begin(const Piece& piece) = 0;
  /// Answers a GET or HEAD of a stored blob; 404 otherwise.
  virtual net::Response serve(const codec::Sha256& digest, const net::Request& request) = 0;
  /// Removes the blob or its unfinished upload. kNotFound: neither exists.
  virtual Status remove(const codec::Sha256& digest) = 0;
  /// At most `limit` blobs in order of digests, after `after`.
  virtual Result<std::vector<BlobInfo>> list(const std::optional<codec::Sha256>& after,
                                             std::size_t limit) = 0;
  /// Removes unfinished uploads that received nothing since then; returns their number.
  virtual Result<std::size_t> expire_uploads(WallTime unchanged_since) = 0;
  virtual Usage usage() = 0;
};

}  // namespace varda::registry
