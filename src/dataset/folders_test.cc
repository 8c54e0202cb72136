// Folders on a real disk: voc and imagefolder, and hostile contents.
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "dataset/count.h"

namespace varda::dataset {
namespace {

namespace fs = std::filesystem;

class Folders : public ::testing::Test {
 protected:
  Folders() {
    std::string name = (fs::temp_directory_path() / "varda-dataset-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    scratch_ = name;
    root_ = scratch_ / "root";
    fs::create_directories(root_);
  }
  ~Folders() override {
    std::error_code ignored;
    fs::remove_all(scratch_, ignored);
  }

  void put(const fs::path& path, const std::string& bytes = "x") {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << bytes;
  }
  Result<Counted> run_count(const std::string& format, const fs::path& path) {
    TRY(const auto tree, os::open_readable_tree({root_}));
    return count(Context::background(), *tree,
                 {.path = path, .format = find_format(format).value()});
  }
  Result<Counted> run_count(const std::string& format) { return run_count(format, root_); }

  fs::path scratch_, root_;
};

using Classes = std::map<std::string, std::uint64_t>;

TEST_F(Folders, ImagesAreCountedByClassFolder) {
  for (const char* path :
       {"cat/1.jpg", "cat/2.JPEG", "cat/more/3.png", "dog/1.webp", "dog/notes.txt", ".thumbs/1.jpg",
        "cat/.hidden.jpg", "cat/.jpg", "README.md", "empty/notes"}) {
    put(path);
  }
  const Counted counted = run_count("imagefolder").value();
  EXPECT_EQ(counted.tally.samples, 4u);
  EXPECT_EQ(counted.tally.classes, (Classes{{"cat", 3}, {"dog", 1}}));
  EXPECT_EQ(counted.tally.malformed, 0u);
  EXPECT_EQ(counted.tally.inexact, "");
  EXPECT_EQ(counted.bytes, 4u);
  put("dog/2.gif");
  EXPECT_NE(run_count("imagefolder")->fingerprint, counted.fingerprint);
  fs::remove(root_ / "dog/2.gif");
  EXPECT_EQ(run_count("imagefolder")->fingerprint, counted.fingerprint);
}

TEST_F(Folders, InvalidImagesAreMalformedAndTheFirstByNameIsReported) {
  put("z/empty.jpg", "");
  put("loose.jpg");
  put("a/1.jpg");
  ASSERT_EQ(::mkfifo((root_ / "a/pipe.jpg").c_str(), 0600), 0);
  const Counted counted = run_count("imagefolder").value();
  EXPECT_EQ(counted.tally.samples, 1u);
  EXPECT_EQ(counted.tally.malformed, 3u);
  EXPECT_EQ(*counted.tally.first_malformed,
            (Malformed{"a/pipe.jpg", 0, 0, "a pipe, socket or device"}));
}

TEST_F(Folders, LinksOutOfTheRootAreMalformedAndLoopsAreNotFollowed) {
  put("a/1.jpg");
  fs::create_directories(scratch_ / "outside");
  std::ofstream(scratch_ / "outside/secret.jpg") << "x";
  fs::create_symlink("1.jpg", root_ / "a/inside.jpg");
  fs::create_symlink(scratch_ / "outside/secret.jpg", root_ / "a/out.jpg");
  fs::create_symlink("nowhere.jpg", root_ / "a/broken.jpg");
  fs::create_symlink("loop.jpg", root_ / "a/loop.jpg");
  Counted counted = run_count("imagefolder").value();
  EXPECT_EQ(counted.tally.samples, 2u);
  EXPECT_EQ(counted.tally.malformed, 3u);
  EXPECT_EQ(counted.tally.first_malformed->file, "a/broken.jpg");
  EXPECT_EQ(counted.tally.inexact, "");
  fs::create_directory_symlink("..", root_ / "a/round");
  counted = run_count("imagefolder").value();
  EXPECT_EQ(counted.tally.samples, 2u);
  EXPECT_EQ(counted.tally.inexact, "a/round: a link to a folder, which is not entered");
}

TEST_F(Folders, ThousandNestedFoldersAreReportedAndNotEntered) {
  fs::path deep = root_;
  for (int i = 0; i < 1000; ++i) deep /= "d";
  fs::create_directories(deep);
  put("d/1.jpg");
  const Counted counted = run_count("imagefolder").value();
  EXPECT_EQ(counted.tally.samples, 1u);
  EXPECT_NE(counted.tally.inexact.find("deeper than 64 folders"), std::string::npos)
      << counted.tally.inexact;
}

TEST_F(Folders, DistinctClassesAreCountedUpToTheBound) {
  for (std::size_t i = 0; i < kClassesMax + 5; ++i) {
    char name[16];
    std::snprintf(name, sizeof name, "c%06zu", i);
    fs::create_directory(root_ / name);
    std::ofstream(root_ / name / "1.jpg") << "x";
  }
  const Counted counted = run_count("imagefolder").value();
  EXPECT_EQ(counted.tally.samples, kClassesMax + 5);
  EXPECT_EQ(counted.tally.classes.size(), kClassesMax);
  EXPECT_EQ(counted.tally.classes.rbegin()->first, "c009999");
  EXPECT_EQ(counted.tally.further_classes, 5u);
}

TEST_F(Folders, VocAnnotationsAreCountedWithTheirObjectClasses) {
  put("Annotations/1.xml",
      "<?xml version=\"1.0\"?><annotation><filename>1.jpg</filename><object><name> cat "
      "</name><part><name>head</name></part></object>"
      "<object><name>d&#111;g</name></object></annotation>");
  put("Annotations/2.XML", "<annotation><object><pose/><name>cat</name></object></annotation>\n");
  put("Annotations/3.xml", "<annotation></annotation>");
  put("Annotations/notes.txt");
  put("JPEGImages/1.jpg");
  const Counted counted = run_count("voc").value();
  EXPECT_EQ(counted.tally.samples, 3u);
  EXPECT_EQ(counted.tally.classes, (Classes{{"cat", 2}, {"dog", 1}}));
  EXPECT_EQ(counted.tally.malformed, 0u);
  EXPECT_EQ(counted.state, "");
  put("Annotations/3.xml", "<annotation> </annotation>");
  EXPECT_NE(run_count("voc")->fingerprint, counted.fingerprint);
}

TEST_F(Folders, InvalidAnnotationIsMalformedWithFileAndReason) {
  std::string bomb = "<!DOCTYPE a [<!ENTITY l0 \"lol\">";
  for (int i = 1; i < 10; ++i) {
    bomb += "<!ENTITY l" + std::to_string(i) + " \"";
    for (int j = 0; j < 10; ++j) bomb += "&l" + std::to_string(i - 1) + ";";
    bomb += "\">";
  }
  bomb += "]><annotation><object><name>&l9;</name></object></annotation>";
  std::string deep = "<annotation>";
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "no element"},
           {"<annotation>\n<object>", "no element"},
           {"<annotation>\n</object>", "mismatched tag"},
           {"<html></html>", "root is not <annotation>"},
           {"<annotation><object></object></annotation>", "without a name"},
           {"<annotation><object><name> </name></object></annotation>", "without a name"},
           {"<annotation><object><name>" + std::string(300, 'x') + "</name></object></annotation>",
            "longer than 256"},
           {"<!DOCTYPE a [<!ENTITY x SYSTEM "
            "\"file:///etc/passwd\">]><annotation><object><name>&x;</name></object></annotation>",
            "entities"},
           {bomb, "entities"},
           {deep, "nested deeper"},
           {"<annotation>" + std::string(kXmlBytesMax, ' '), "longer than 16 MiB"},
           {std::string(100, '\0'), ""},
           {"<annotation>\xFF\xFE</annotation>", "not well-formed"},
       }) {
    put("Annotations/1.xml", text);
    const Counted counted = run_count("voc").value();
    EXPECT_EQ(counted.tally.samples, 0u) << why;
    ASSERT_EQ(counted.tally.malformed, 1u) << why;
    EXPECT_EQ(counted.tally.first_malformed->file, "Annotations/1.xml");
    EXPECT_NE(counted.tally.first_malformed->why.find(why), std::string::npos)
        << counted.tally.first_malformed->why;
    EXPECT_TRUE(counted.tally.classes.empty());
  }
}

TEST_F(Folders, MissingOrWrongPathsAreRefusedByName) {
  put("data.csv", "1,2\n");
  put("folder/1.jpg");
  ASSERT_EQ(::mkfifo((root_ / "pipe").c_str(), 0600), 0);
  std::ofstream(scratch_ / "secret.csv") << "1,2\n";
  fs::create_symlink(scratch_ / "secret.csv", root_ / "link.csv");
  fs::create_symlink("data.csv", root_ / "inside.csv");
  for (const auto& [format, path, code, why] :
       std::vector<std::tuple<std::string, fs::path, Code, std::string>>{
           {"csv", root_ / "nope.csv", Code::kNotFound, "nope.csv"},
           {"csv", root_ / "folder", Code::kInvalid, "is a folder"},
           {"csv", root_ / "pipe", Code::kInvalid, "pipe, socket or device"},
           {"csv", scratch_ / "secret.csv", Code::kForbidden, "secret.csv"},
           {"csv", root_ / "../secret.csv", Code::kForbidden, "secret.csv"},
           {"csv", root_ / "link.csv", Code::kForbidden, "secret.csv"},
           {"csv", "/dev/zero", Code::kForbidden, "/dev/zero"},
           {"imagefolder", root_ / "data.csv", Code::kInvalid, "is not a folder"},
           {"voc", root_ / "folder", Code::kInvalid, "Annotations"},
           {"voc", scratch_, Code::kForbidden, "does not lie below"},
       }) {
    const auto counted = run_count(format, path);
    ASSERT_FALSE(counted.ok()) << path;
    EXPECT_EQ(counted.error().code(), code) << counted.error();
    EXPECT_NE(counted.error().message().find(why), std::string::npos) << counted.error();
  }
  EXPECT_EQ(run_count("csv", root_ / "inside.csv")->tally.samples, 1u);
  EXPECT_EQ(run_count("csv", root_ / "folder/../data.csv")->tally.samples, 1u);
}

}  // namespace
}  // namespace varda::dataset
