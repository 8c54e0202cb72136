// Reads stored blobs and writes uploads on a thread that may block.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/result.h"
#include "registry/blob_store.h"

namespace varda::registry {

/// Passes the bytes [first, first + length) of a stored blob to `sink`, in order. Ends with the
/// first error of `sink`. kNotFound: the bytes are not stored, or the store cannot read them.
Status read_blob(BlobStore& blobs, const codec::Sha256& digest, std::uint64_t first,
                 std::uint64_t length, const std::function<Status(std::string_view)>& sink);

/// Appends bytes of a stored blob to the piece, at the speed of the store. Errors as read_blob()
/// and BlobUpload::write(). kUnavailable: the store took no bytes for a minute.
Status copy_into(BlobUpload& upload, BlobStore& blobs, const codec::Sha256& digest,
                 std::uint64_t first, std::uint64_t length);

}  // namespace varda::registry
