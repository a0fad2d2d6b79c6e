"""Local state: directories, restore from changelogs, standby copies, snapshots."""
