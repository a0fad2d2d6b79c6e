"""Local state: directories, restore from changelogs, standby tasks, snapshots."""
