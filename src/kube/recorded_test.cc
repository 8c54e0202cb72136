// The client reads answers that a real API server sent (testdata/record.py), byte for byte over a
// socket. UPDATE_GOLDEN=1 writes testdata/recorded/expected.txt.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "base/testing/golden.h"
#include "kube/client.h"
#include "net/client.h"
#include "net/testing/raw_socket.h"

namespace varda::kube {
namespace recorded_test {

namespace fs = std::filesystem;

const Resource kMaps{"", "v1", "ConfigMap", "configmaps", true};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

std::string name_of(const Json& object) {
  return object["kind"].as_string() + " " + object["metadata"]["name"].as_string();
}

std::string reported(const Error& error) {
  return std::string(to_string(error.code())) + ": " + error.message() + "\n";
}

/// The answer as seen by the call that would get it.
std::string understood(const std::string& name, const std::string& bytes) {
  const net::testing::CannedServer server(bytes);
  const auto http = net::make_client({});
  const Client client(*http, {.base_url = "http://127.0.0.1:" + std::to_string(server.port())});
  const Context ctx = Context().with_timeout(std::chrono::seconds(120));
  std::ostringstream out;
  if (name.starts_with("list") || name.starts_with("bad") || name.starts_with("wrong") ||
      name.starts_with("no-")) {
    const auto list = client.list(ctx, kMaps);
    if (!list.ok()) return reported(list.error());
    out << "list" << (list->resource_version.empty() ? " of no version" : "")
        << (list->continue_token.empty() ? "" : ", and more");
    std::size_t bytes_in_all = 0;
    for (const Json& item : list->items) {
      out << ", " << name_of(item);
      bytes_in_all += codec::write_json(item["data"]).size();
    }
    out << ", " << bytes_in_all << " bytes\n";
  } else if (name.starts_with("watch")) {
    auto watch = client.watch(ctx, kMaps, {.resource_version = "1"});
    if (!watch.ok()) return reported(watch.error());
    while (true) {
      const auto event = (*watch)->next();
      if (!event.ok()) return out.str() + reported(event.error());
      if (!*event) break;
      out << "event " << static_cast<int>((*event)->type) << " " << name_of((*event)->object)
          << ((*event)->resource_version.empty() ? " of no version" : "") << "; ";
    }
    out << "the end\n";
  } else if (name.starts_with("get")) {
    const auto got = client.get(ctx, kMaps, {"default", "missing"});
    out << (got.ok() ? name_of(*got) + "\n" : reported(got.error()));
  } else {
    const Json map =
        Json::object({{"metadata", Json::object({{"name", "a"}, {"namespace", "default"}})}});
    const auto made = name.starts_with("update") ? client.update(ctx, kMaps, map)
                                                 : client.create(ctx, kMaps, map);
    out << (made.ok() ? name_of(*made) + "\n" : reported(made.error()));
  }
  return out.str();
}

TEST(Recorded, RecordedAnswersOfARealServerParseAsExpected) {
  const fs::path directory = fs::path(VARDA_TESTDATA) / "recorded";
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() == ".http") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_GE(files.size(), 16u);
  std::string all;
  for (const fs::path& file : files)
    all += file.stem().string() + ": " + understood(file.stem().string(), read_file(file));
  check_golden(directory / "expected.txt", all);
}

}  // namespace recorded_test
}  // namespace varda::kube
