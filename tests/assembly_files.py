"""Assembly101's published labels of mistakes, small."""

import zipfile

from cefito.data.downloads import find_places

RIGHT = "nusar-2021_action_both_9011-b06b_9011_user_id_2021-02-01_154253"
WRONG = "nusar-2021_action_both_9012-c07_9012_user_id_2021-02-01_164345"
LABELS = {
    RIGHT: "30,75,attach,engine cover,chassis,correct,\n75,100,position,figurine,cabin,correct,\n",
    WRONG: "0,45,attach,body,chassis,correct,\n45,60,attach,cabin,body,mistake,wrong order\n"
    "60,70,detach,cabin,body,correction,\n70,90,detach,body,chassis,mistake,\n",
    "nusar-2021_action_both_9013-a01_9013": "0,1,attach,body,chassis,correct,\n",  # in no split
}


def write_files(folder, labels=LABELS, test=WRONG):
    """The published files: an archive, and two lists."""
    folder.mkdir(exist_ok=True)
    files = {place.name: folder / place.file for place in find_places("assembly101")}
    with zipfile.ZipFile(files["assembly101-labels"], "w") as archive:
        archive.writestr("project-41f6/README.md", "about")
        for name, text in labels.items():
            archive.writestr(f"project-41f6/annots/{name}.csv", text)
    files["assembly101-train"].write_text(f"{RIGHT}\n")
    files["assembly101-test"].write_text(f"{test}\n")
    return folder
