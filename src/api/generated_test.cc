// The files generated from the kinds: deploy/crds/*.yaml and docs/reference/*.md. UPDATE_GOLDEN=1
// writes them.

#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <map>

#include "api/kind.h"
#include "base/testing/golden.h"
#include "codec/yaml.h"

namespace varda::api {
namespace {

namespace fs = std::filesystem;

std::map<fs::path, std::string> generated() {
  const fs::path root(VARDA_SOURCE_DIR);
  std::map<fs::path, std::string> files;
  std::string index =
      "# Reference\n\n<!-- Generated from src/api by `UPDATE_GOLDEN=1 api_test`. Do not edit. "
      "-->\n\n| kind | apiVersion | "
      "description "
      "|\n|---|---|---|\n";
  for (const Kind* kind : kinds()) {
    const meta::Resource& resource = kind->resource;
    files[root / "deploy/crds" / (resource.group + "_" + resource.plural + ".yaml")] =
        "# Generated from src/api by `UPDATE_GOLDEN=1 api_test`. Do not edit.\n" +
        codec::write_yaml(crd(*kind));
    const std::string page = (kind->page.empty() ? kind->singular : kind->page) + ".md";
    files[root / "docs/reference" / page] = reference_page(*kind);
    index += "| [" + resource.kind + "](" + page + ") | `" + resource.api_version() + "` | " +
             kind->schema->description + " |\n";
  }
  files[root / "docs/reference/README.md"] = index;
  return files;
}

std::string read(const fs::path& path) {
  std::ifstream in(path);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

TEST(Generated, GeneratedFilesAreUpToDate) {
  for (const auto& [path, text] : generated()) check_golden(path, text);
}

TEST(Generated, NoGeneratedFileIsOrphaned) {
  const auto files = generated();
  for (const char* folder : {"deploy/crds", "docs/reference"}) {
    for (const auto& entry : fs::directory_iterator(fs::path(VARDA_SOURCE_DIR) / folder)) {
      const bool generated =
          // The folder also has handwritten pages.
          read(entry.path()).find("Generated from src/api") != std::string::npos;
      EXPECT_TRUE(!generated || files.contains(entry.path()))
          << entry.path() << " belongs to no kind";
    }
  }
}

TEST(Generated, CrdFilesRoundTripAndFitClientSideApply) {
  for (const auto& [path, text] : generated()) {
    if (path.extension() != ".yaml") continue;
    EXPECT_LT(text.size(), 256u * 1024) << path;
    auto parsed = codec::parse_yaml(text);
    ASSERT_TRUE(parsed.ok()) << path << parsed.error().message();
    bool found = false;
    for (const Json& one : crds()) found = found || one == parsed.value();
    EXPECT_TRUE(found) << path;
  }
}

// Structural schemas need a type for every value. CEL's cost limits need bounds for every list and
// string that a rule reads.
TEST(Generated, SchemasAreStructuralAndBounded) {
  const std::function<void(const Schema&, const std::string&)> visit =
      [&](const Schema& schema, const std::string& path) {
        if (!path.empty() && path.find('[') == std::string::npos) {
          EXPECT_FALSE(schema.description.empty()) << path;
        }
        if (schema.type == Schema::Type::kArray) {
          ASSERT_NE(schema.items, nullptr) << path;
          EXPECT_TRUE(schema.items_max.has_value()) << path << " has no maxItems";
          for (const std::string& key : schema.list_keys) {
            const Property* property = schema.items->find(key);
            ASSERT_NE(property, nullptr) << path << " has no member " << key;
            EXPECT_TRUE(property->required)
                << path << "." << key << " is a list-map key and must be required";
          }
          visit(*schema.items, path + "[]");
        }
        if (schema.type == Schema::Type::kString && schema.one_of.empty() &&
            schema.format.empty()) {
          EXPECT_TRUE(schema.length_max.has_value()) << path << " has no maxLength";
        }
        if (schema.additional) visit(*schema.additional, path + "[]");
        for (const Property& property : schema.properties)
          visit(property.schema, path + "." + property.name);
        for (const Rule& rule : schema.rules) {
          EXPECT_FALSE(rule.cel.empty()) << path;
          EXPECT_FALSE(rule.message.empty()) << path;
          EXPECT_TRUE(rule.check) << path;
        }
      };
  for (const Kind* kind : kinds()) visit(*kind->schema, "");
}

}  // namespace
}  // namespace varda::api
