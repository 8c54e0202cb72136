// Chunk lists, untrusted files beside archives: whatever a list says, the installed tree is right,
// and an upload has every byte of its file once.
//
// Input: a list as a file if it begins with 'V'. Else one byte for each chunk, which selects a
// chunk of the held archive or of the new one.
#include "codec/chunks.h"

#include <cstdio>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "artifact/pack.h"
#include "artifact/store.h"
#include "base/rng.h"
#include "input.h"
#include "os/testing/memory_file_system.h"
#include "registry/upload_plan.h"

namespace {

using namespace varda;

constexpr const char* kUrl = "http://files/4.tar";

std::string noise(std::size_t size, std::uint64_t seed) {
  std::string bytes(size, '\0');
  const auto rng = seeded_rng(seed);
  for (char& c : bytes) c = static_cast<char>(rng->below(256));
  return bytes;
}

struct Version {
  std::string model, archive;
  codec::Sha256 digest;
  std::vector<codec::Chunk> chunks;
};

Version make(std::string model) {
  Version out{.model = std::move(model), .archive = {}, .digest = {}, .chunks = {}};
  os::testing::MemoryFileSystem fs;
  CHECK(fs.make_directories("/m", 0755).ok());
  CHECK(os::write_file_atomically(fs, "/m/model.onnx", out.model).ok());
  codec::ChunkSplitter splitter([&](const codec::Chunk& chunk) { out.chunks.push_back(chunk); });
  const auto packed = artifact::pack(Context(), fs, "/m", {.format = codec::ArchiveFormat::kTar},
                                     [&](std::string_view bytes) {
                                       out.archive += bytes;
                                       splitter.update(bytes);
                                       return ok_status();
                                     });
  splitter.finish();
  CHECK(packed.ok());
  out.digest = packed->digest;
  return out;
}

class Body final : public net::BodyReader {
 public:
  explicit Body(std::string bytes) : bytes_(std::move(bytes)) {}
  Result<std::optional<std::string>> read() override {
    if (bytes_.empty()) return std::optional<std::string>();
    return std::optional(std::exchange(bytes_, {}));
  }

 private:
  std::string bytes_;
};

/// An honest file server, apart from the list.
class Server final : public net::HttpClient {
 public:
  std::map<std::string, std::string> files;

  Result<net::ClientResponse> send(const Context&, net::ClientRequest request) override {
    const std::string& whole = files.at(request.url);
    net::ClientResponse out;
    out.status = 200;
    std::size_t first = 0, last = whole.size() - 1;
    if (const auto range = request.headers.find("Range")) {
      CHECK(std::sscanf(std::string(*range).c_str(), "bytes=%zu-%zu", &first, &last) >= 1);
      out.status = first < whole.size() ? 206 : 416;
      last = std::min(last, whole.size() - 1);
      CHECK(out.status == 416 || first <= last);
      out.headers.add("Content-Range", "bytes " + std::to_string(first) + "-" +
                                           std::to_string(last) + "/" +
                                           std::to_string(whole.size()));
    }
    out.body = std::make_unique<Body>(out.status == 416 ? std::string()
                                                        : whole.substr(first, last - first + 1));
    return out;
  }
};

/// Sends `bytes`, of which a base with this list may have parts.
void check_upload(const std::string& bytes, const codec::ChunkList& base) {
  const auto read = [&](std::uint64_t offset, std::uint64_t length) -> Result<std::string> {
    return bytes.substr(offset, length);
  };
  const auto parts = registry::find_shared_parts(Context(), read, bytes.size(), base).value();
  for (std::uint64_t offset = 0; offset < bytes.size();) {
    const auto step = registry::next_step(parts, offset, bytes.size(), 100'000);
    CHECK(step.length > 0 && step.copied <= bytes.size() - offset - step.length);
    CHECK(step.copied == 0 || step.copied <= base.bytes - step.copy_first);
    offset += step.length + step.copied;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::Input input(data, size);
  static const Version before = make(noise(1100 << 10, 1));
  static const Version after =
      make(std::string(before.model).replace(500'000, 40'000, noise(50'000, 2)));
  if (input.rest().starts_with('V')) {
    const auto list = codec::parse_chunk_list(input.rest());
    if (list.ok()) {
      CHECK(codec::write_chunk_list(*list) == input.rest());
      check_upload(after.archive, *list);
    }
    return 0;
  }
  codec::ChunkList list{.bytes = 0, .digest = after.digest, .chunks = {}};
  for (const char c : input.rest().substr(0, 200)) {
    const auto byte = static_cast<std::uint8_t>(c);
    const auto& from = byte < 128 ? after.chunks : before.chunks;
    list.chunks.push_back(from[byte % 128 % from.size()]);
    list.bytes += list.chunks.back().bytes;
  }
  check_upload(after.archive, list);
  static os::testing::MemoryFileSystem fs;
  static Server server;
  server.files = {{"http://files/3.tar", before.archive},
                  {kUrl, after.archive},
                  {std::string(kUrl) + ".chunks", codec::write_chunk_list(list)}};
  static const auto store = [] {
    CHECK(fs.make_directories("/data", 0755).ok());
    auto made = artifact::Store::open({.root = "/data/artifacts"}, fs, server).value();
    CHECK(made->ensure(Context(), {.url = "http://files/3.tar", .digest = before.digest}).ok());
    return made;
  }();
  const auto installed =
      store->ensure(Context(), {.url = kUrl, .digest = after.digest, .bases = {before.digest}});
  CHECK(installed.ok());
  CHECK(os::read_file(fs, installed->directory / "model.onnx").value() == after.model);
  CHECK(store->remove(after.digest).ok());
  return 0;
}
