#include "file_digests.h"

#include <utility>

#include "net/client.h"

namespace varda::app {

namespace {
artifact::DigestReader::Options reader_options(std::vector<os::Path> file_roots) {
  artifact::DigestReader::Options options;
  options.file_roots = std::move(file_roots);
  return options;
}
}  // namespace

FileDigests::FileDigests(std::unique_ptr<net::HttpClient> http, std::vector<os::Path> file_roots)
    : http_(std::move(http)),
      files_(reader_options(std::move(file_roots)), os::real_file_system(), *http_) {}

Result<std::unique_ptr<FileDigests>> FileDigests::create(const DownloadFlags& flags,
                                                         std::vector<os::Path> file_roots) {
  TRY(const net::ClientOptions options, download_client_options(flags));
  return std::unique_ptr<FileDigests>(
      new FileDigests(net::make_client(options), std::move(file_roots)));
}

hosting::FileDigestReader FileDigests::reader() {
  return [this](const std::string& url) {
    using From = artifact::DigestReader::Answer::State;
    using To = hosting::FileDigest::State;
    const artifact::DigestReader::Answer answer = files_.ask(url);
    switch (answer.state) {
      case From::kReading:
        break;
      case From::kFailed:
        return hosting::FileDigest{To::kFailed, "", 0, answer.message};
      case From::kRead:
        return hosting::FileDigest{To::kRead, answer.facts.digest.hex(),
                                   static_cast<std::int64_t>(answer.facts.bytes), ""};
    }
    return hosting::FileDigest{};
  };
}

}  // namespace varda::app
