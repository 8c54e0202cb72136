// A request for an artifact, and the reports of its progress.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "codec/digest.h"
#include "net/http.h"

namespace varda::artifact {

/// A peer node that has the archive or will have it. It is asked with ranges. If it is not ready,
/// it answers 503, with its progress in kBytesDoneHeader. The caller waits as long as it
/// progresses.
struct Peer {
  net::HttpClient* http = nullptr;  // client for that peer node; outlives the request
  std::string url;
};
inline constexpr std::string_view kBytesDoneHeader = "Varda-Bytes-Done";

struct Request {
  std::string url;                        // http, https, s3 or file; messages omit
                                          // "user:password@" and query
  std::vector<std::string> mirrors = {};  // further URLs of the same bytes, tried after `url`
  std::vector<Peer> peers = {};           // tried before all URLs, without credentials
  std::string credentials = {};           // name for the CredentialReader, for all URLs; "": none
  codec::Sha256 digest;                   // of the archive as downloaded
  std::string framework = {};   // "onnx": layout is checked; others and "": any tree with files
  std::uint64_t max_bytes = 0;  // limit of extracted bytes; 0: as in Limits
  std::vector<codec::Sha256> bases = {};  // artifacts that may share parts of the archive, such as
                                          // other versions of the model; missing ones are ignored
};

enum class Phase : std::uint8_t { kDownload, kExtract };

struct Progress {
  Phase phase = Phase::kDownload;
  std::uint64_t done = 0;   // bytes of the archive, or extracted bytes
  std::uint64_t total = 0;  // 0: unknown
};
/// Called on a working thread, about every 256 KiB and at the end of each phase. Download and
/// extraction overlap, so reports alternate and may come from two threads at once. Must be cheap
/// and must not call back.
using ProgressSink = std::function<void(const Progress&)>;

/// The URL without user, password and query, for messages.
std::string shown_url(std::string_view url);

}  // namespace varda::artifact
