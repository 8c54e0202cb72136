// Folders on a real disk: voc, imagefolder and folders of files, and hostile contents.
#include <cstdlib>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "dataset/count.h"

namespace varda::dataset {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

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
  Result<Counted> run_count(const std::string& format, const fs::path& path,
                            const std::string& state = "") {
    TRY(const auto tree, os::open_readable_tree({root_}));
    return count(Context::background(), *tree,
                 {.path = path, .format = find_format(format).value(), .state = state});
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

TEST_F(Folders, XmlIsAnotherNameOfVoc) {
  put("Annotations/1.xml", "<annotation><object><name>cat</name></object></annotation>");
  const Counted voc = run_count("voc").value(), xml = run_count("XML").value();
  EXPECT_EQ(xml.tally, voc.tally);
  EXPECT_EQ(xml.fingerprint, voc.fingerprint);
  EXPECT_EQ(find_format("xml").value()->name, "xml");
  put("notes/1.txt");
  EXPECT_EQ(run_count("xml", root_ / "notes").error().message(),
            (root_ / "notes").string() +
                " has neither a folder Annotations nor a file *.xml, as xml has");
  EXPECT_EQ(run_count("xml", root_ / "notes/1.txt").error().message(),
            (root_ / "notes/1.txt").string() + " is not a folder; xml is counted in a folder");
}

TEST_F(Folders, AnnotationsWithoutTheFolderAnnotationsAreCounted) {
  put("1.xml", "<annotation><object><name>cat</name></object></annotation>");
  put("2.XML", "<html/>");
  put("1.jpg");
  put("deeper/3.xml", "<annotation/>");
  for (const char* format : {"voc", "xml"}) {
    const Counted counted = run_count(format).value();
    EXPECT_EQ(counted.tally.samples, 1u);
    EXPECT_EQ(counted.tally.classes, (Classes{{"cat", 1}}));
    EXPECT_EQ(counted.tally.malformed, 1u);
    EXPECT_EQ(counted.tally.first_malformed->file, "2.XML");
  }
}

TEST_F(Folders, FolderOfFilesIsTheSumOfItsFiles) {
  for (const auto& [format, text, samples, malformed] :
       std::vector<std::tuple<std::string, std::string, std::uint64_t, std::uint64_t>>{
           {"txt", "a\n\nb\n", 2, 0},
           {"csv", "id,name\n1,x\n2,\"y\nz\"\n3\n", 2, 1},
           {"tsv", "id\tname\n1\tx\n2\n", 1, 1},
           {"jsonl", "{}\n[1]\n{\n", 2, 1},
           {"json", "[1,2,{}]", 3, 0}}) {
    fs::remove_all(root_);
    put("a." + format, text);
    put("deep/er/b." + format, text);
    put("C." + std::string(format == "csv" ? "CSV" : format), text);
    for (const char* ignored : {".hidden", "notes", "notes.md", "a.gz"}) put(ignored, text);
    put(".git/x." + format, text);
    put("." + format, text);
    const Counted counted = run_count(format).value();
    EXPECT_EQ(counted.tally.samples, 3 * samples) << format;
    EXPECT_EQ(counted.tally.malformed, 3 * malformed) << format;
    EXPECT_EQ(counted.tally.inexact, "") << format;
    EXPECT_EQ(counted.bytes, 3 * text.size()) << format;
    EXPECT_EQ(counted.from_byte, 0u);
    EXPECT_EQ(counted.tally.header, format == "csv" || format == "tsv" ? "yes" : "") << format;
    const Counted one = run_count(format, root_ / ("a." + format)).value();
    EXPECT_EQ(one.tally.samples, samples) << format;
    if (malformed > 0) {
      Malformed first = *one.tally.first_malformed;
      first.file = format == "csv" ? "C.CSV" : "C." + format;
      EXPECT_EQ(*counted.tally.first_malformed, first) << "the first by name";
    }
  }
}

TEST_F(Folders, HeaderIsEmptyIfTheFilesOfAFolderDiffer) {
  put("a.csv", "id,name\n1,x\n");
  put("b.csv", "1,2\n3,4\n");
  put("c.csv", "id,name\n");
  const Counted counted = run_count("csv").value();
  EXPECT_EQ(counted.tally.samples, 3u);
  EXPECT_EQ(counted.tally.header, "");
}

TEST_F(Folders, CutJsonFileMakesTheFolderInexactByName) {
  put("a.json", "[1,2]");
  put("b.json", "[1,[2],");
  const Counted counted = run_count("json").value();
  EXPECT_EQ(counted.tally.samples, 4u);
  EXPECT_TRUE(counted.tally.inexact.starts_with("b.json: ")) << counted.tally.inexact;
}

TEST_F(Folders, FolderWithoutFilesOfTheFormatHasNoSamples) {
  put("a.csv", "1,2\n");
  const Counted counted = run_count("txt").value();
  EXPECT_EQ(counted.tally.samples, 0u);
  EXPECT_EQ(counted.tally.inexact, "");
}

TEST_F(Folders, CountOfFilesContinuesAfterEachChange) {
  const auto append = [this](const char* name, const char* bytes) {
    std::ofstream(root_ / name, std::ios::app) << bytes;
  };
  put("a.txt", "1\n2\n");
  put("b.txt", "1\n2\n3\n");
  put("deep/c.txt", "1\n");
  std::string state = run_count("txt")->state;
  struct Change {
    const char* why;
    std::function<void()> make;
    std::uint64_t samples, bytes_reused;
  };
  for (const Change& change : std::vector<Change>{
           {"nothing", [] {}, 6, 12},
           {"growth", [&] { append("a.txt", "3\n4\n"); }, 8, 12},
           {"growth inside of a line", [&] { append("deep/c.txt", "2"); }, 9, 16},
           {"end of this line", [&] { append("deep/c.txt", "2\n"); }, 9, 17},
           {"a new file", [&] { put("new.txt", "1\n"); }, 10, 19},
           {"a removed file", [&] { fs::remove(root_ / "b.txt"); }, 7, 15},
           {"a file of another format", [&] { put("new.csv", "1\n"); }, 7, 15},
           {"a rename", [&] { fs::rename(root_ / "new.txt", root_ / "old.txt"); }, 7, 13},
           {"a truncated file", [&] { fs::resize_file(root_ / "a.txt", 2); }, 4, 7},
           {"an editor's replacement",
            [&] {
              put("tmp", "1\n2\n3\n");
              fs::rename(root_ / "tmp", root_ / "a.txt");
            },
            6, 7},
           {"rewritten with the same size",
            [&] {
              put("a.txt", "1\n\n\n\n\n");
              fs::last_write_time(root_ / "a.txt", fs::file_time_type::clock::now() - 1h);
            },
            4, 7},
       }) {
    change.make();
    const Counted whole = run_count("txt").value(), next = run_count("txt", root_, state).value();
    EXPECT_EQ(next.tally, whole.tally) << change.why;
    EXPECT_EQ(next.fingerprint, whole.fingerprint) << change.why;
    EXPECT_EQ(next.bytes, whole.bytes) << change.why;
    EXPECT_EQ(next.state, whole.state) << change.why;
    EXPECT_EQ(next.tally.samples, change.samples) << change.why;
    EXPECT_EQ(next.from_byte, change.bytes_reused) << change.why;
    EXPECT_EQ(next.whole_because, "") << change.why;
    state = next.state;
  }
}

TEST_F(Folders, UnusableStateOfAFolderIsReportedAndEverythingIsRead) {
  put("a.csv", "1,2\n");
  const std::string state = run_count("csv")->state;
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"{}", "damaged"},
           {state.substr(0, state.size() / 2), "damaged"},
           {run_count("csv", root_ / "a.csv")->state, "no files"},
           {run_count("tsv")->state, "another format"}}) {
    const Counted counted = run_count("csv", root_, text).value();
    EXPECT_EQ(counted.tally.samples, 1u);
    EXPECT_EQ(counted.from_byte, 0u);
    EXPECT_NE(counted.whole_because.find(why), std::string::npos) << counted.whole_because;
    EXPECT_EQ(counted.state, state);
  }
  EXPECT_NE(run_count("csv", root_ / "a.csv", state)->whole_because, "");
}

TEST_F(Folders, FolderOfVeryManyFilesHasNoState) {
  const std::string long_name(200, 'n');
  for (int i = 0; i < 1600; ++i) put(long_name + std::to_string(i) + ".txt", "1\n");
  const Counted counted = run_count("txt").value();
  EXPECT_EQ(counted.tally.samples, 1600u);
  EXPECT_EQ(counted.state, "");
}

// A file of gigabytes must not keep other datasets waiting.
TEST_F(Folders, BigFileOfAFolderIsReadInPortions) {
  const std::string text(std::size_t{3} << 20, '\n');
  put("a.txt", "1\n" + text + "2\n");
  put("b.txt", "3");
  const auto tree = os::open_readable_tree({root_}).value();
  const auto folder =
      FolderCount::begin(*tree, {.path = root_, .format = find_format("txt").value()}).value();
  int portions = 0;
  std::optional<Counted> counted;
  while (!counted) {
    counted = folder->resume(Context::background(), 256).value();  // 1 MiB
    ++portions;
  }
  EXPECT_GE(portions, 3);
  EXPECT_EQ(counted->tally.samples, 3u);
  EXPECT_EQ(counted->fingerprint, run_count("txt")->fingerprint);
}

TEST_F(Folders, FileThatChangesWhileItIsReadMakesTheFolderInexact) {
  put("a.txt", std::string(std::size_t{3} << 20, '\n'));
  const auto tree = os::open_readable_tree({root_}).value();
  const auto folder =
      FolderCount::begin(*tree, {.path = root_, .format = find_format("txt").value()}).value();
  ASSERT_FALSE(folder->resume(Context::background(), 256)->has_value());
  std::ofstream(root_ / "a.txt", std::ios::app) << "1\n";
  std::optional<Counted> counted;
  while (!counted) counted = folder->resume(Context::background(), 256).value();
  EXPECT_TRUE(counted->tally.inexact.starts_with("a.txt: the file grew")) << counted->tally.inexact;
  const Counted next = run_count("txt", root_, counted->state).value();
  EXPECT_EQ(next.tally.samples, 1u);
  EXPECT_EQ(next.tally.inexact, "");
  EXPECT_EQ(next.from_byte, std::uint64_t{3} << 20);
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
           {"coco", root_ / "folder", Code::kInvalid, "is a folder"},
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
