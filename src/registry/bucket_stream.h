// The body of a download from a bucket.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/context.h"
#include "net/http.h"
#include "net/server.h"
#include "registry/bucket.h"

namespace varda::registry {

/// Limit of one request for a download.
inline constexpr std::uint64_t kRangeBytes = 1 << 20;

/// Runs `work` on a thread of the pool. A pool that ends drops the work that waits.
void run_on(net::HandlerPool& pool, std::function<void()> work);

struct ObjectSource {
  Context ctx;
  Bucket& bucket;
  net::HandlerPool& readers;
  std::string key;
};
/// `begin`, then the bytes [next, end) of the object: one range is read while another is sent. If
/// the bucket fails, the stream ends before its length. The bucket and the pool outlive the stream.
std::unique_ptr<net::BodyStream> stream_object(ObjectSource source, std::string begin,
                                               std::uint64_t next, std::uint64_t end);

}  // namespace varda::registry
