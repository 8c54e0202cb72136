// What to make present, and how its progress is told.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "codec/digest.h"
#include "net/http.h"

namespace varda::artifact {

/// Somebody beside this machine who has the archive, or is about to have it. Asked with ranges; what it is not ready to give it
/// answers with 503 and, in kBytesDoneHeader, how far it is: then it is waited for as long as it gets on.
struct Neighbour {
  net::HttpClient* http = nullptr;  // knows that neighbour; outlives the request
  std::string url;
};
inline constexpr std::string_view kBytesDoneHeader = "Varda-Bytes-Done";

struct Request {
  std::string url;                         // http, https, s3 or file; "user:password@" and the query never appear in messages
  std::vector<std::string> mirrors = {};   // further URLs of the same bytes, after `url`
  std::vector<Neighbour> neighbours = {};  // asked before all of them, with no credentials
  std::string credentials = {};            // what all of them ask for, by a name that the CredentialReader knows; "" nothing
  codec::Sha256 digest;                    // of the archive as downloaded
  std::string framework = {};              // "onnx": its layout is checked; others and "": any tree with a file in it
  std::uint64_t max_bytes = 0;             // extracted; 0 takes the limits' own
};

enum class Phase : std::uint8_t { kDownload, kExtract };

struct Progress {
  Phase phase = Phase::kDownload;
  std::uint64_t done = 0;   // bytes: of the archive, or extracted
  std::uint64_t total = 0;  // 0: not known
};
/// Called on a working thread, every 256 KiB or so and at the end of each phase. Download and extraction run at once, so their
/// reports alternate, and the two may come from two threads at the same time. Cheap; must not call back.
using ProgressSink = std::function<void(const Progress&)>;

/// The URL as it may be shown: without user, password and query.
std::string shown_url(std::string_view url);

}  // namespace varda::artifact
